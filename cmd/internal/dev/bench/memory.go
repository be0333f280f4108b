package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"runtime"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/config"
)

// memoryLoop reads the whole export into memory and then produces it.
func memoryLoop(ctx context.Context, st *config.Stream, _ *config.Settings) (partEnd, error) {
	var records []kgo.Record
	_, err := eachPage(ctx, st, func(source bridge.Source, page *bridge.Page) error {
		err := source.Decode(page)
		records = appendRecords(records, page, st)
		return err
	})
	if err != nil {
		return partEnd{}, err
	}
	return produceAll(ctx, &st.Kafka.Config, records)
}

// appendRecords appends the records that the bridge makes of a page. The records
// share no memory with the page.
func appendRecords(to []kgo.Record, page *bridge.Page, st *config.Stream) []kgo.Record {
	id := page.Source
	source := "/" + url.PathEscape(id.Organization) + "/" + url.PathEscape(id.Application) + "/" + st.Kafka.Resource
	text := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	version, from, content := text("ce_specversion", "1.0"), text("ce_source", source),
		text("content-type", "application/json")
	stream, origin := text("eb-stream", st.Name), text("eb-origin", "live")
	for i := range page.Events {
		ev := &page.Events[i]
		headers := []kgo.RecordHeader{
			version, {Key: "ce_id", Value: ev.AppendRecordID(nil)}, from,
			text("ce_type", "com.croct.event."+string(ev.Type)),
			text("ce_time", time.UnixMilli(ev.Time).UTC().Format("2006-01-02T15:04:05.000Z")),
		}
		if ev.Subject != nil {
			headers = append(headers, text("ce_subject", string(ev.Subject)))
		}
		to = append(to, kgo.Record{
			Topic: st.Kafka.Topic, Key: bytes.Clone(ev.Key), Value: bytes.Clone(ev.Raw),
			Timestamp: time.UnixMilli(ev.Time), Headers: append(headers, content, stream, origin),
		})
	}
	return to
}

// produceAll produces the records as the bridge does, idempotently. The first
// page warms up the connections, and the clock starts after it.
func produceAll(ctx context.Context, cfg *kafkasink.Config, records []kgo.Record) (partEnd, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(cfg.Brokers...), kgo.DisableClientMetrics(),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(1<<30),
		kgo.ProducerBatchCompression(memoryCodec(cfg.Compression)), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
	)
	if err != nil {
		return partEnd{}, fmt.Errorf("create Kafka client: %w", err)
	}
	defer client.Close()
	warm := min(pageEvents, len(records)/2)
	if err := produceRecords(ctx, client, records[:warm]); err != nil {
		return partEnd{}, err
	}
	runtime.GC()
	end := partEnd{Began: time.Now(), Events: len(records) - warm}
	before := ownCPU()
	if err := produceRecords(ctx, client, records[warm:]); err != nil {
		return partEnd{}, err
	}
	end.Ended = time.Now()
	end.CPUSeconds = ownCPU() - before
	return end, nil
}

// produceRecords produces and waits for the last acknowledgement.
func produceRecords(ctx context.Context, client *kgo.Client, records []kgo.Record) error {
	var done sync.WaitGroup
	var failed error // needs no lock: the promises run one after the other
	done.Add(len(records))
	promise := func(_ *kgo.Record, err error) {
		if err != nil && failed == nil {
			failed = err
		}
		done.Done()
	}
	for i := range records {
		client.Produce(ctx, &records[i], promise)
	}
	done.Wait()
	if failed != nil {
		return fmt.Errorf("produce: %w", failed)
	}
	return ctx.Err()
}

func memoryCodec(name string) kgo.CompressionCodec {
	codecs := map[string]kgo.CompressionCodec{
		"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(),
		"zstd": kgo.ZstdCompression(),
	}
	if codec, ok := codecs[name]; ok {
		return codec
	}
	return kgo.NoCompression()
}
