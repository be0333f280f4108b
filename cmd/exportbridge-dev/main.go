// Command exportbridge-dev holds what exportbridge is tried and measured with: a
// demo, a simulated export API, and the bench.
package main

import "exportbridge/cmd/internal/dev"

func main() { dev.Program.Execute() }
