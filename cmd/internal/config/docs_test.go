package config

import (
	"strings"
	"testing"
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
