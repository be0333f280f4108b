// Command exportbridge follows the cursor of a paginated export API and turns
// it into a Kafka topic.
package main

import "exportbridge/cmd/internal/command"

func main() { command.Program.Execute() }
