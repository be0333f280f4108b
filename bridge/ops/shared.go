package ops

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

const (
	// maxWaiting is the maximum number of requests of one kind that wait for an answer.
	maxWaiting = 16
	// queryTimeout bounds a query. It is below the write time-out.
	queryTimeout = 25 * time.Second
	// keptAnswers is the number of answers of one kind that are kept for waiting requests.
	keptAnswers = 4
	// lettersKept is how long dead letters are kept: reading them connects to Kafka.
	lettersKept = time.Second
)

// parser returns the reader of a request's answer, and a key: requests with the same key get
// the same answer.
type parser func(*http.Request) (key string, read reader, err error)

// reader reads an answer from Redis or Kafka.
type reader func(context.Context) (any, error)

// shared answers the queries of one kind. One query at a time reads an answer, for all
// waiting requests with the same key: memory and connections do not grow with the number of
// clients. An answer is at most keep older than its request.
type shared struct {
	keep   time.Duration
	places chan struct{} // full while maxWaiting requests wait or read
	turn   chan struct{} // guards recent; held by the request that reads

	recent map[string]answer // by key
}

// answer is an answer as JSON, or an error.
type answer struct {
	body  []byte
	err   error
	began time.Time
}

func (s *shared) answer(ctx context.Context, key string, read reader) answer {
	asked := time.Now()
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		return answer{err: errorf(http.StatusServiceUnavailable, "retry in a second",
			"too many requests: %d are in progress", maxWaiting)}
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return answer{err: ctx.Err()}
	}
	if a, ok := s.recent[key]; ok && !a.began.Add(s.keep).Before(asked) {
		return a
	}
	a := answer{began: time.Now()}
	var v any
	if v, a.err = read(ctx); a.err == nil {
		a.body, a.err = encode(v)
	}
	if len(s.recent) >= keptAnswers {
		clear(s.recent)
	}
	if ctx.Err() == nil { // the client has not left
		s.recent[key] = a
	}
	return a
}

// query answers with what the parser's reader returns, as JSON.
func (h *handler) query(keep time.Duration, parse parser) http.HandlerFunc {
	s := &shared{
		keep: keep, places: make(chan struct{}, maxWaiting), turn: make(chan struct{}, 1), recent: make(map[string]answer),
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), queryTimeout)
		defer cancel()
		key, read, err := parse(r)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		a := s.answer(ctx, key, read)
		if a.err != nil {
			h.fail(w, r, a.err)
			return
		}
		send(w, http.StatusOK, a.body)
	}
}

// reply sends v as JSON.
func reply(w http.ResponseWriter, status int, v any) {
	body, _ := encode(v) // plain values always encode
	send(w, status, body)
}

func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	return append(body, '\n'), err
}

func send(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body) // or the client has left
}
