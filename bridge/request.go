package bridge

import (
	"fmt"
	"strings"
	"time"
)

// RequestState says how far an operator's request has come: a Command on its
// way through an Inbox.
type RequestState string

// The states of a request.
const (
	RequestPending   RequestState = "pending"   // nobody has taken it up
	RequestClaimed   RequestState = "claimed"   // an owner is about to apply it
	RequestAnswered  RequestState = "answered"  // applied, refused or expired; see the Answer
	RequestWithdrawn RequestState = "withdrawn" // taken back before anybody claimed it
	RequestUnknown   RequestState = "unknown"   // never made, made too long ago, or lost
)

// RequestOutcome is what became of a request.
type RequestOutcome struct {
	// State says which of the fields below are set.
	State RequestState
	// Owner is who claimed it, in RequestClaimed.
	Owner string
	// Answer is set in RequestAnswered.
	Answer Answer
}

// expiredPrefix begins the detail of an ExpiredAnswer.
const expiredPrefix = "expired: "

// ExpiredAnswer is the answer to a request that nobody applied before its
// deadline, and why.
func ExpiredAnswer(why string) Answer { return Answer{Detail: expiredPrefix + why} }

// Expired reports whether a is an ExpiredAnswer.
func (a *Answer) Expired() bool { return !a.Applied && strings.HasPrefix(a.Detail, expiredPrefix) }

// PendingError refuses a request while another one is pending.
type PendingError struct {
	// Command is the request in the way.
	Command Command
	// Since is when it was made, by the store's clock.
	Since time.Time
	// Owner is who claimed it, or empty.
	Owner string
	// Overdue is true past its deadline: the next session of the stream finds
	// out what became of it, and answers it.
	Overdue bool
}

func (e *PendingError) Error() string {
	by := e.Command.Who
	if by == "" {
		by = "somebody"
	}
	text := fmt.Sprintf("another %s, %s by %s, is pending since %s", e.Command.Kind, e.Command.ID, by, e.Since.UTC().Format(time.RFC3339))
	if e.Owner != "" {
		text += ", claimed by " + e.Owner
	}
	return text
}
