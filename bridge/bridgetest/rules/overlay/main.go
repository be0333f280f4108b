// Command overlay writes patched copies of the sources, in which each rule of the
// protocol can be taken away, and the file for the flag -overlay to a folder:
//
//	overlay FOLDER
package main

import (
	"fmt"
	"os"

	"exportbridge/bridge/bridgetest/rules"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: overlay FOLDER")
		os.Exit(2)
	}
	if _, err := rules.Overlay(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
}
