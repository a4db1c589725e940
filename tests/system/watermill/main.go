// What watermill's AMQP subscriber makes of a message that failed once: watermill URL. Says what it saw as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	config := amqp.NewDurableQueueConfig(os.Args[1])
	logger := watermill.NopLogger{}
	publisher, err := amqp.NewPublisher(config, logger)
	must(err)
	subscriber, err := amqp.NewSubscriber(config, logger)
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	messages, err := subscriber.Subscribe(ctx, "watermill")
	must(err)
	sent := message.NewMessage("7", []byte("x"))
	sent.Metadata.Set("kind", "test")
	must(publisher.Publish("watermill", sent))
	seen := []map[string]string{}
	for len(seen) < 3 {
		received, open := <-messages
		if !open {
			break
		}
		seen = append(seen, received.Metadata)
		if len(seen) < 3 {
			received.Nack()
		} else {
			received.Ack()
		}
	}
	must(subscriber.Close())
	must(publisher.Close())
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{"received": len(seen), "metadata": seen}))
}
