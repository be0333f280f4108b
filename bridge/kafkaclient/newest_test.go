package kafkaclient_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkaclient"
)

// everything is a topic of one partition that only has what is read of it.
type everything struct{}

func (everything) Read(_ context.Context, all map[int32]kafkaclient.Span, visit func(*kgo.Record) error) error {
	for offset := all[0].From; offset < all[0].To; offset++ {
		if err := visit(&kgo.Record{Offset: offset, Timestamp: time.UnixMilli(offset)}); err != nil {
			return err
		}
	}
	return nil
}

// A number beyond all records asks for all of them.
func TestNewestOfAll(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, 9} {
		all, err := kafkaclient.Newest(t.Context(), everything{}, spans{0: {0, size}}, math.MaxInt,
			func(r *kgo.Record) (int64, bool) { return r.Offset, true })
		if err != nil || int64(len(all)) != size {
			t.Errorf("%v of %d, %v", all, size, err)
		}
	}
}

// Newest holds 2n values, however many records it reads: in a shared topic those that
// count may be far back.
func TestNewestHoldsFew(t *testing.T) {
	t.Parallel()
	const n, size = 5, 5_000
	var taken []weak.Pointer[string]
	all, err := kafkaclient.Newest(t.Context(), everything{}, spans{0: {0, size}}, n, func(r *kgo.Record) (*string, bool) {
		if r.Offset > size/2 {
			return nil, false
		}
		value := fmt.Sprint(r.Offset)
		taken = append(taken, weak.Make(&value))
		if len(taken)%500 == 0 {
			held := size
			for try := 0; try < 5 && held > 2*n+2; try++ { // a collection may find some in a stack that it interrupts
				runtime.GC()
				held = len(slices.DeleteFunc(slices.Clone(taken),
					func(p weak.Pointer[string]) bool { return p.Value() == nil }))
			}
			if held > 2*n+2 {
				t.Errorf("holds %d values after %d", held, len(taken))
			}
		}
		return &value, true
	})
	if err != nil || len(all) != n || *all[0] != fmt.Sprint(size/2-n+1) || *all[n-1] != fmt.Sprint(size/2) ||
		len(taken) < 500 {
		t.Errorf("%d values of %d, %v", len(all), len(taken), err)
	}
}
