package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/sethvargo/go-envconfig"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cursorstore"
)

// TestDefaultConfigs: who uses the packages as a library has the defaults that
// the program reads from the tags.
func TestDefaultConfigs(t *testing.T) {
	t.Parallel()
	engine, export, kafka, redis := bridge.DefaultConfig(), exportapi.DefaultConfig(), kafkasink.DefaultConfig(), cursorstore.DefaultConfig()
	export.APIKey = "k"
	var engineTags bridge.Config
	var exportTags exportapi.Config
	var kafkaTags kafkasink.Config
	var redisTags cursorstore.Config
	for _, c := range []struct{ tags, made any }{{&engineTags, &engine}, {&exportTags, &export}, {&kafkaTags, &kafka}, {&redisTags, &redis}} {
		err := envconfig.ProcessWith(t.Context(), &envconfig.Config{Target: c.tags, DefaultNoInit: true, Lookuper: envconfig.MapLookuper(map[string]string{"EXPORT_API_KEY": "k"})})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.tags, c.made, cmpopts.IgnoreUnexported(kafkasink.Config{})); diff != "" {
			t.Errorf("%T: defaults differ (-tags +made):\n%s", c.made, diff)
		}
	}
}
