package config

import (
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
)

func TestSettingsTable(t *testing.T) {
	t.Parallel()
	table := Markdown(shopVariables())
	for _, want := range []string{
		"| `SHOP_NAME` | required | its name; for example `corner` |\n",
		"| `SHOP_WAIT` * | `30d` |  |\n",
		"| `SHOP_KEY` * |  | ; secret, has no flag |\n",
		"| `SHOP_COLOUR` | `red` | ; one of `red`, `green` |\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no row %q in\n%s", want, table)
		}
	}
	if got := tableText.Replace("a|b <c>"); got != `a\|b \<c>` {
		t.Errorf("cell %q", got)
	}
}

// The setting of a time lists the forms that a time may have, as the error does.
func TestStartListsForms(t *testing.T) {
	t.Parallel()
	_, err := bridge.ParseInstant("?", time.Now())
	_, forms, _ := strings.Cut(err.Error(), ": use ")
	if row := Markdown(Variables()); forms == "" || !strings.Contains(row, "begins: "+forms+";") {
		t.Errorf("the settings do not list %q as the forms of EXPORT_START", forms)
	}
}
