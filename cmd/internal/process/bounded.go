package process

import (
	"errors"
	"fmt"
	"slices"

	"exportbridge/bridge"
)

// DeadError is the error of a bounded run that has published only dead letters.
type DeadError struct {
	Stream string
	Items  int64
}

func (d *DeadError) Error() string {
	return fmt.Sprintf("stream %s: all %d items of this run are dead letters, no event was published", d.Stream, d.Items)
}

// EmptyEndError is the error of a bounded run that empty pages ended, where the API has
// never marked the end of its results.
type EmptyEndError struct {
	Stream string
	Pages  int
}

func (e *EmptyEndError) Error() string {
	return fmt.Sprintf("stream %s: done as far as read: %d empty pages in a row ended the results, more may follow",
		e.Stream, e.Pages)
}

// UnreadError is the error of a bounded run that ended on a first page with a part that
// looks like a next cursor.
type UnreadError struct {
	Stream  string
	Warning bridge.Warning
}

func (u *UnreadError) Error() string {
	return fmt.Sprintf("stream %s: done as far as read: %s", u.Stream, u.Warning.Text)
}

// doubts returns an error for each stream whose bounded run has ended without an error, but
// may not have reached its goal.
func doubts(all []bridge.Status) error {
	var errs []error
	for i := range all {
		if s := &all[i]; s.Published == 0 && s.DeadLettered > 0 {
			errs = append(errs, &DeadError{s.Stream, s.DeadLettered})
		} else if s.EndedEmpty > 0 {
			errs = append(errs, &EmptyEndError{s.Stream, s.EndedEmpty})
		} else if i := slices.IndexFunc(s.Warnings,
			func(w bridge.Warning) bool { return w.Code == bridge.WarningUnread }); i >= 0 {
			errs = append(errs, &UnreadError{s.Stream, s.Warnings[i]})
		}
	}
	return errors.Join(errs...)
}
