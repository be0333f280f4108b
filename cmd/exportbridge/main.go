// Command exportbridge follows the cursor of a paginated export API and turns
// it into a Kafka topic.
package main

import (
	"context"
	"io"
	"log"
	"os"
)

func main() {
	log.SetOutput(io.Discard) // libraries quote events there; see package process
	ctx, stop := interruptible(context.Background())
	code := run(ctx, os.Args[1:], os.Environ(), stdio{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}
