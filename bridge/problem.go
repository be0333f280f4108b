package bridge

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one invalid setting.
type Problem struct {
	// Variable is the environment variable to correct; empty if several variables may be
	// wrong.
	Variable string
	// Message names the variable, what is wrong, and an example. It never
	// contains a secret.
	Message string
}

// Error implements error.
func (p Problem) Error() string { return p.Message }

// Problemf returns a problem whose message is the variable's name, a space and the
// formatted text.
func Problemf(variable, format string, args ...any) Problem {
	return Problem{variable, strings.TrimSpace(variable + " " + fmt.Sprintf(format, args...))}
}

// Problems are all mistakes in a Config. The Validate method of each package's Config
// returns them.
type Problems []Problem

// Check adds the problem of Problemf unless ok.
func (p *Problems) Check(ok bool, variable, format string, args ...any) {
	if !ok {
		*p = append(*p, Problemf(variable, format, args...))
	}
}

// OneOf adds a problem unless value is one of the allowed values. The problem does not list
// an empty allowed value.
func (p *Problems) OneOf(variable, value string, allowed ...string) {
	words := strings.TrimPrefix(strings.Join(allowed, ", "), ", ")
	p.Check(slices.Contains(allowed, value), variable, "%q is not one of: %s", value, words)
}

// Add adds the Problems or the Problem in err, or err as a Problem without a variable. It
// ignores nil.
func (p *Problems) Add(err error) {
	if err == nil {
		return
	}
	if all, ok := errors.AsType[Problems](err); ok {
		*p = append(*p, all...)
		return
	}
	one, ok := errors.AsType[Problem](err)
	if !ok {
		one.Message = err.Error()
	}
	*p = append(*p, one)
}

// Err returns the problems as an error, nil if there are none.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// Error implements error, with a line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Message
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each Problem.
func (p Problems) Unwrap() []error {
	errs := make([]error, len(p))
	for i := range p {
		errs[i] = p[i]
	}
	return errs
}
