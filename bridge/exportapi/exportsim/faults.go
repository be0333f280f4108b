package exportsim

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// The faults that are not an HTTP status.
const (
	// FaultReset sends half of the response and resets the connection.
	FaultReset = "reset"
	// FaultTruncate announces the whole body in Content-Length, sends half of it, and
	// closes the connection.
	FaultTruncate = "truncate"
	// FaultMalformed is a complete response with truncated JSON.
	FaultMalformed = "malformed"
	// FaultHTML responds 200 with an HTML page.
	FaultHTML = "html"
	// FaultStall accepts the request and never responds. It ends when the client gives up
	// or the Handler is closed.
	FaultStall = "stall"
)

// Fault is a failure of a request and its probability.
type Fault struct {
	// Kind is a status from 400 to 599, or one of the constants.
	Kind string
	// Probability is between 0 and 1.
	Probability float64
}

// Faults are injected into requests that would otherwise succeed, at most one per request.
// So the probabilities add up to at most 1.
type Faults []Fault

// ParseFaults parses a list such as "429=1%,500=0.5%,reset=0.001". An empty text has no
// faults.
func ParseFaults(text string) (Faults, error) {
	var faults Faults
	for field := range strings.SplitSeq(text, ",") {
		field = strings.TrimSpace(field)
		if field == "" {
			continue
		}
		kind, amount, found := strings.Cut(field, "=")
		if !found {
			return nil, fmt.Errorf("fault %q has no probability, write for example %s=1%%", field, field)
		}
		number, percent := strings.CutSuffix(strings.TrimSpace(amount), "%")
		probability, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, fmt.Errorf("fault %q: probability %q is not a number, write for example %s=1%%", field, amount, kind)
		}
		if percent {
			probability /= 100
		}
		faults = append(faults, Fault{Kind: strings.TrimSpace(kind), Probability: probability})
	}
	return faults, faults.validate()
}

func (f Faults) validate() error {
	var errs []error
	var sum float64
	seen := map[string]bool{}
	for _, fault := range f {
		if !validFault(fault.Kind) {
			errs = append(errs, fmt.Errorf("fault %q is not one of: reset, truncate, malformed, html, stall, or a status "+
				"from 400 to 599", fault.Kind))
		}
		if seen[fault.Kind] {
			errs = append(errs, fmt.Errorf("fault %q is given twice", fault.Kind))
		}
		seen[fault.Kind] = true
		// The negation also catches a NaN.
		if !(fault.Probability >= 0 && fault.Probability <= 1) {
			errs = append(errs, fmt.Errorf("fault %q: probability %v is not within 0 and 100%%", fault.Kind, fault.Probability))
		}
		sum += fault.Probability
	}
	if sum > 1+1e-9 {
		errs = append(errs, fmt.Errorf("the probabilities of all faults add up to %.4g%%, more than 100%%", sum*100))
	}
	return errors.Join(errs...)
}

func validFault(kind string) bool {
	if status, err := strconv.Atoi(kind); err == nil {
		return status >= 400 && status <= 599
	}
	return slices.Contains([]string{FaultReset, FaultTruncate, FaultMalformed, FaultHTML, FaultStall}, kind)
}

// draw returns the fault that a random number selects, or "".
func (f Faults) draw(random uint64) string {
	at := float64(random) / math.MaxUint64
	for _, fault := range f {
		if at < fault.Probability {
			return fault.Kind
		}
		at -= fault.Probability
	}
	return ""
}

// apply changes an answer as the fault demands. send breaks the connection.
func (h *Handler) apply(fault string, random uint64, a answer) answer {
	if status, err := strconv.Atoi(fault); err == nil {
		failed := h.problem(status, "injected-fault", "The request failed on purpose.")
		failed.pooled = a.pooled
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			failed.retryAfter = retryAfter(random, h.pages.world.clock())
		}
		return failed
	}
	switch fault {
	case FaultHTML:
		return answer{
			status: http.StatusOK, contentType: "text/html; charset=utf-8",
			body: []byte(maintenancePage), pooled: a.pooled,
		}
	case FaultMalformed:
		a.body, a.encoded = a.body[:len(a.body)/2], nil
	}
	return a
}

const maintenancePage = `<!doctype html>
<html><head><title>Be right back</title></head><body><h1>Scheduled maintenance</h1></body></html>
`
