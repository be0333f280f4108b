package bridge

import (
	"fmt"
	"strings"
	"time"
)

// RequestState is the progress of an operator's request: a Command in an Inbox.
type RequestState string

// The states of a request.
const (
	RequestPending   RequestState = "pending"   // nobody has taken it up
	RequestClaimed   RequestState = "claimed"   // an owner is about to apply it
	RequestAnswered  RequestState = "answered"  // applied, refused or expired; see the Answer
	RequestWithdrawn RequestState = "withdrawn" // taken back before anybody claimed it
	RequestUnknown   RequestState = "unknown"   // never made, made too long ago, or lost
)

// RequestOutcome is the state of a request, and its answer.
type RequestOutcome struct {
	// State decides which of the fields below are set.
	State RequestState
	// Owner is the claimer, for RequestClaimed.
	Owner string
	// Answer is set for RequestAnswered.
	Answer Answer
}

// expiredPrefix starts the detail of an ExpiredAnswer.
const expiredPrefix = "expired: "

// ExpiredAnswer is the answer to a request that was not applied before its
// deadline.
func ExpiredAnswer(why string) Answer { return Answer{Detail: expiredPrefix + why} }

// Expired reports whether a is an ExpiredAnswer.
func (a *Answer) Expired() bool { return !a.Applied && strings.HasPrefix(a.Detail, expiredPrefix) }

// PendingError refuses a request while another one is pending.
type PendingError struct {
	// Command is the pending request.
	Command Command
	// Since is when it was made, by the store's clock.
	Since time.Time
	// Owner is the claimer, or empty.
	Owner string
	// Overdue is true past its deadline: the stream's next session determines
	// its outcome and answers it.
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
