package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"runtime/debug"

	amqp "github.com/rabbitmq/amqp091-go"
)

// (docs/interoperability.md)

func main() {
	connection, err := amqp.Dial(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	channel, err := connection.Channel()
	if err != nil {
		log.Fatal(err)
	}
	deliveries, err := channel.Consume("orders", "", false, false, false, false, nil)
	if err != nil {
		log.Fatal(err)
	}
	for delivery := range deliveries {
		if err := failed(channel, delivery, errors.New("no rate for GBP")); err != nil {
			log.Fatal(err)
		}
	}
}
