// Package ptytest opens pseudo-terminals for tests.
package ptytest

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal is a pseudo-terminal.
type Terminal struct {
	*os.File // the end for the program
	t        testing.TB
	master   *os.File
	output   chan string
}

// Open returns a terminal of that width.
func Open(t testing.TB, columns int) *Terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo-terminals: ", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &Terminal{File: terminal, t: t, master: master, output: make(chan string, 1)}
	p.Resize(columns)
	go func() { // ends when the last program has closed the terminal
		defer master.Close()
		text, err := io.ReadAll(master)
		if err != nil && !errors.Is(err, unix.EIO) {
			t.Error(err)
		}
		p.output <- string(text)
	}()
	return p
}

// Type types a text on the terminal.
func (p *Terminal) Type(text string) {
	p.t.Helper()
	if _, err := p.master.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

// Resize sets the width of the terminal.
func (p *Terminal) Resize(columns int) {
	p.t.Helper()
	size := &unix.Winsize{Row: 24, Col: uint16(columns)}
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, size); err != nil {
		p.t.Fatal(err)
	}
}

// Output closes the terminal and returns what was written to it, as soon as no
// other program has it open.
func (p *Terminal) Output() string {
	p.t.Helper()
	if err := p.Close(); err != nil {
		p.t.Fatal(err)
	}
	return <-p.output
}

// StatusLines returns the lines of an output that the next one replaces.
func StatusLines(output string) []string {
	var lines []string
	for written := range strings.SplitSeq(output, "\r\x1b[K") {
		if line := written[strings.LastIndexByte(written, '\n')+1:]; line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
