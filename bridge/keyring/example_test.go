package keyring_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/keyring"
	"exportbridge/bridge/seal"
)

// A consumer decrypts the value of /payload/email in a record.
func ExampleReader() {
	ctx := context.Background()
	lines, err := os.ReadFile("masters") // as EVENT_ENCRYPT_KEY_FILE
	if err != nil {
		return
	}
	master, err := seal.ParseMaster(string(lines))
	if err != nil {
		return
	}
	cfg := keyring.Config{Kafka: kafkaclient.DefaultConfig(), Topic: "export.events.keys", Master: master}
	cfg.Kafka.Brokers = []string{"localhost:9092"}
	keys, err := keyring.NewReader(ctx, cfg)
	if err != nil {
		return
	}
	defer keys.Close()
	var event struct{ Payload struct{ Email string } }
	_ = json.Unmarshal([]byte(`{"payload":{"email":"eb1:forgotten"}}`), &event)
	email, err := keys.Open(ctx, "/payload/email", event.Payload.Email)
	switch {
	case errors.Is(err, seal.ErrForgotten):
		fmt.Println("the person is forgotten")
	case err == nil:
		fmt.Println("the email is", string(email)) // JSON
	}
}
