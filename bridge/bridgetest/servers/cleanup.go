package servers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"exportbridge/bridge/bridgetest/must"
)

// leakPatience bounds the wait for goroutines that are about to end. After Close, an
// embedded broker ends some goroutines of its connections later, which takes longer on a
// busy machine.
const leakPatience = 30 * time.Second

// Leakless is a testing.M that fails if goroutines are left after the tests.
type Leakless struct {
	*testing.M
	AtOnce int            // number of tests that run at a time, as for Parallel; 0 is go test's default
	Ends   []func() error // called after the tests, before it looks for goroutines
}

// Run runs the tests and returns the exit code.
func (m Leakless) Run() int {
	if m.AtOnce > 0 {
		Parallel(m.AtOnce)
	}
	code := m.M.Run()
	var errs []error
	for _, end := range m.Ends {
		errs = append(errs, end())
	}
	if err := errors.Join(append(errs, Leaks())...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Leaks returns an error if goroutines are left.
func Leaks() error {
	var err error
	for began := time.Now(); time.Since(began) < leakPatience; {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

// CloseAtEnd closes c at the end of the test. An error fails the test.
func CloseAtEnd(t testing.TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// Client returns a client of the brokers, a list with commas. The end of the test closes
// it.
func Client(t testing.TB, brokers string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client := must.Get(kgo.NewClient(append(opts, kgo.SeedBrokers(strings.Split(brokers, ",")...))...))(t)
	t.Cleanup(client.Close)
	return client
}
