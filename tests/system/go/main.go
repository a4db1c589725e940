// What RabbitMQ's own Go client makes of a broker: check URL NAME [COUNT]. Says what it saw as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func opened(url string) (*amqp.Connection, *amqp.Channel) {
	connection, err := amqp.Dial(url)
	must(err)
	channel, err := connection.Channel()
	must(err)
	return connection, channel
}

// closes: each connection publishes with a confirm, closes, and hears nothing but nil on NotifyClose.
func closes(url string, count int) map[string]any {
	clean, hung, words := 0, 0, map[string]int{}
	for range count {
		connection, channel := opened(url)
		heard := connection.NotifyClose(make(chan *amqp.Error, 1))
		must(channel.Confirm(false))
		queue, err := channel.QueueDeclare("", false, true, true, false, nil)
		must(err)
		confirmation, err := channel.PublishWithDeferredConfirm("", queue.Name, false, false, amqp.Publishing{Body: []byte("x")})
		must(err)
		confirmation.Wait()
		done := make(chan error, 1)
		go func() { done <- connection.Close() }()
		select {
		case err = <-done:
		case <-time.After(10 * time.Second):
			hung++
			continue
		}
		reason := <-heard
		switch {
		case err != nil:
			words["Close: "+err.Error()]++
		case reason != nil:
			words["NotifyClose: "+reason.Error()]++
		default:
			clean++
		}
	}
	return map[string]any{"clean": clean, "hung": hung, "errors": words}
}

// headers: those of a message that came back to a classic and to a quorum queue, as it was sent with none and with one.
func headers(url string, _ int) map[string]any {
	connection, channel := opened(url)
	defer connection.Close()
	seen := map[string]any{}
	for _, kind := range []string{"classic", "quorum"} {
		queue, err := channel.QueueDeclare("headers-"+kind, true, false, false, false, amqp.Table{"x-queue-type": kind})
		must(err)
		must(channel.PublishWithContext(context.Background(), "", queue.Name, false, false,
			amqp.Publishing{Body: []byte("x"), Headers: amqp.Table{"id": "7"}, DeliveryMode: amqp.Persistent}))
		deliveries, err := channel.Consume(queue.Name, "", false, false, false, false, nil)
		must(err)
		first := <-deliveries
		must(first.Nack(false, true))
		again := <-deliveries
		must(again.Ack(false))
		seen[kind] = []any{first.Headers, again.Redelivered, again.Headers}
	}
	return seen
}

// queueOf: a queue that holds these messages and nothing of an earlier program's.
func queueOf(channel *amqp.Channel, name string, bodies string) string {
	_, err := channel.QueueDelete(name, false, false, false)
	must(err)
	queue, err := channel.QueueDeclare(name, true, false, false, false, nil)
	must(err)
	for _, body := range bodies {
		must(channel.PublishWithContext(context.Background(), "", queue.Name, false, false,
			amqp.Publishing{Body: []byte(string(body)), DeliveryMode: amqp.Persistent}))
	}
	return queue.Name
}

// order: what comes where a consumer gives back what it holds, each as it comes and a window at once.
func order(url string, _ int) map[string]any {
	seen := map[string]any{}
	play := func(name string, bodies string, prefetch int, rounds int, back func(*amqp.Channel, amqp.Delivery)) {
		connection, channel := opened(url)
		defer connection.Close()
		queue := queueOf(channel, "order-"+name, bodies)
		if name == "transaction" {
			must(channel.Tx())
		}
		must(channel.Qos(prefetch, 0, false))
		deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
		must(err)
		came := []string{}
		for range rounds {
			var last amqp.Delivery
			for range prefetch {
				last = <-deliveries
				word := string(last.Body)
				if last.Redelivered {
					word += "'"
				}
				came = append(came, word)
			}
			back(channel, last)
		}
		seen[name] = strings.Join(came, " ")
	}
	play("nack", "ABC", 1, 4, func(_ *amqp.Channel, last amqp.Delivery) { must(last.Nack(false, true)) })
	play("reject", "ABC", 1, 4, func(_ *amqp.Channel, last amqp.Delivery) { must(last.Reject(true)) })
	play("recover", "ABC", 1, 4, func(channel *amqp.Channel, _ amqp.Delivery) { must(channel.Recover(true)) })
	play("window", "ABCDEFGH", 3, 2, func(_ *amqp.Channel, last amqp.Delivery) { must(last.Nack(true, true)) })
	play("transaction", "ABC", 1, 4, func(channel *amqp.Channel, last amqp.Delivery) {
		must(last.Nack(false, true))
		must(channel.TxCommit())
	})
	return seen
}

// prefetch: what is left of ten when two consumers of a channel have taken what they may, with a prefetch of 2 for each and for both.
func prefetch(url string, _ int) map[string]any {
	seen := map[string]any{}
	for name, global := range map[string]bool{"each": false, "channel": true} {
		connection, channel := opened(url)
		queue := queueOf(channel, "prefetch-"+name, "ABCDEFGHIJ")
		must(channel.Qos(2, 0, global))
		for range 2 {
			_, err := channel.Consume(queue, "", false, false, false, false, nil)
			must(err)
		}
		left := -1
		for {
			found, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
			must(err)
			if found.Messages == left {
				break
			}
			left = found.Messages
			time.Sleep(100 * time.Millisecond)
		}
		seen[name] = left
		must(connection.Close())
	}
	return seen
}

func main() {
	count := 0
	if len(os.Args) > 3 {
		count, _ = strconv.Atoi(os.Args[3])
	}
	checks := map[string]func(string, int) map[string]any{
		"closes": closes, "headers": headers, "order": order, "prefetch": prefetch}
	must(json.NewEncoder(os.Stdout).Encode(checks[os.Args[2]](os.Args[1], count)))
}
