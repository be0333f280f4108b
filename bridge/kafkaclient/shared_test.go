package kafkaclient_test

import (
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/kafkaclient"
)

// A Shared has one client for all callers, and closes it when nobody has used it for ten
// seconds.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := kafkaclient.DefaultConfig()
		var s kafkaclient.Shared
		open := func() (*kafkaclient.Client, func()) {
			t.Helper()
			client, release, err := s.Open(&cfg)
			if err != nil {
				t.Fatal(err)
			}
			return client, release
		}
		first, release := open()
		second, releaseSecond := open()
		release()
		<-time.After(time.Minute)
		if second != first || first.Context().Err() != nil {
			t.Error("a client in use is closed, or not shared")
		}
		for range 5 {
			releaseSecond()
			<-time.After(9 * time.Second)
			second, releaseSecond = open()
		}
		releaseSecond()
		<-time.After(11 * time.Second)
		if second != first || first.Context().Err() == nil {
			t.Error("an idle client is closed too early, or never")
		}
		third, releaseThird := open()
		if third == first {
			t.Error("a closed client is lent")
		}
		releaseThird()
		<-time.After(11 * time.Second)

		var none *kafkaclient.Shared
		own, closeOwn, err := none.Open(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		if closeOwn(); own.Context().Err() == nil {
			t.Error("a client of its own is not closed")
		}
	})
}
