package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// loop makes a part of a function that takes the settings of the only stream.
func loop(
	need config.Uses, do func(context.Context, *config.Stream, *config.Settings) (partEnd, error),
) func(context.Context, *cli.App, *part) error {
	return func(ctx context.Context, a *cli.App, _ *part) error {
		s, err := a.Settings(need, nil)
		if err != nil {
			return err
		}
		end, err := do(ctx, &s.Streams[0], s)
		if err != nil {
			return err
		}
		return printEnd(a, end)
	}
}

// fetchLoop follows the cursor to the end and discards the pages.
func fetchLoop(ctx context.Context, st *config.Stream, _ *config.Settings) (partEnd, error) {
	return eachPage(ctx, st, func(bridge.Source, *bridge.Page) error { return nil })
}

// eachPage fetches one page after the other until the API returns no cursor.
func eachPage(ctx context.Context, st *config.Stream, do func(bridge.Source, *bridge.Page) error) (partEnd, error) {
	client, err := exportapi.New(st.Export)
	if err != nil {
		return partEnd{}, err
	}
	defer client.Close()
	return eachPageOf(ctx, client, do)
}

func eachPageOf(
	ctx context.Context, source bridge.Source, do func(bridge.Source, *bridge.Page) error,
) (end partEnd, err error) {
	var at bridge.Position
	for {
		page, err := source.Fetch(ctx, at)
		if err != nil {
			return partEnd{}, err
		}
		if err := do(source, page); err != nil {
			return partEnd{}, err
		}
		last := page.Tail()
		at.Cursor = page.Next
		page.Release()
		if last {
			end.Ended = time.Now()
			return end, nil
		}
	}
}

// sequentialLoop fetches a page, produces it, waits, sets the cursor in Redis,
// and repeats, as fast as possible.
func sequentialLoop(ctx context.Context, st *config.Stream, s *config.Settings) (partEnd, error) {
	sinks, err := newLoopSinks(st, s, kgo.ProducerLinger(0))
	if err != nil {
		return partEnd{}, err
	}
	defer sinks.close()
	var records []kgo.Record
	var pointers []*kgo.Record
	return eachPage(ctx, st, func(source bridge.Source, page *bridge.Page) error {
		if err := source.Decode(page); err != nil {
			return err
		}
		records, pointers = records[:0], pointers[:0]
		for i := range page.Events {
			ev := &page.Events[i]
			records = append(records, kgo.Record{Key: ev.Key, Value: ev.Raw, Timestamp: time.UnixMilli(ev.Time)})
		}
		for i := range records {
			pointers = append(pointers, &records[i])
		}
		return sinks.ship(ctx, pointers, page.Next)
	})
}

// usualLoop does the same in the typical way: with encoding/json and default
// settings.
func usualLoop(ctx context.Context, st *config.Stream, s *config.Settings) (end partEnd, err error) {
	sinks, err := newLoopSinks(st, s)
	if err != nil {
		return partEnd{}, err
	}
	defer sinks.close()
	query := url.Values{"pageSize": {strconv.Itoa(st.Export.PageSize)}}
	for {
		page, err := usualPage(ctx, st.Export.URL+"/events?"+query.Encode(), st.Export.APIKey.Reveal())
		if err != nil {
			return partEnd{}, err
		}
		records := make([]*kgo.Record, 0, len(page.Items))
		for _, item := range page.Items {
			var event struct {
				UserID    string `json:"userId"`
				Timestamp int64  `json:"timestamp"`
			}
			if err := json.Unmarshal(item, &event); err != nil {
				return partEnd{}, err
			}
			records = append(records, &kgo.Record{Key: []byte(event.UserID), Value: item,
				Timestamp: time.UnixMilli(event.Timestamp)})
		}
		if err := sinks.ship(ctx, records, page.NextCursor); err != nil {
			return partEnd{}, err
		}
		if page.NextCursor == "" {
			end.Ended = time.Now()
			return end, nil
		}
		query.Set("cursor", page.NextCursor)
	}
}

type usualItems struct {
	Items      []json.RawMessage `json:"items"`
	NextCursor string            `json:"nextCursor"`
}

func usualPage(ctx context.Context, address, key string) (page usualItems, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return page, err
	}
	req.Header.Set("X-Api-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return page, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
	case resp.StatusCode != http.StatusOK:
		err = fmt.Errorf("the API answers %s", resp.Status)
	default:
		err = json.Unmarshal(body, &page)
	}
	return page, err
}

// loopSinks are the clients by which a loop writes a page and its cursor.
type loopSinks struct {
	kafka *kgo.Client
	redis *redis.Client
	key   string
}

func newLoopSinks(st *config.Stream, s *config.Settings, more ...kgo.Opt) (*loopSinks, error) {
	opts, err := redis.ParseURL(string(s.Cursor.URL))
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(more, kgo.SeedBrokers(st.Kafka.Brokers...),
		kgo.DefaultProduceTopic(st.Kafka.Topic))...)
	if err != nil {
		return nil, fmt.Errorf("create Kafka client: %w", err)
	}
	return &loopSinks{kafka: client, redis: redis.NewClient(opts), key: s.Cursor.Prefix + ":cursor"}, nil
}

// ship produces the records, waits for them, and sets the cursor.
func (l *loopSinks) ship(ctx context.Context, records []*kgo.Record, next string) error {
	if len(records) > 0 {
		if err := l.kafka.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
	if err := l.redis.Set(ctx, l.key, next, 0).Err(); err != nil {
		return fmt.Errorf("set the cursor: %w", err)
	}
	return nil
}

func (l *loopSinks) close() {
	l.kafka.Close()
	_ = l.redis.Close() // nothing is in flight
}
