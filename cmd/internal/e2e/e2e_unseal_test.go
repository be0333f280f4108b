//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/seal"
)

// sealedExample is a key in the topic of keys, and what consumers need to open a value.
type sealedExample struct{ key, record, value, master string }

const sealedPlain = `{"mail":"\u00e9 a@b"}`

func newSealedExample(t *testing.T) sealedExample {
	t.Helper()
	master := bytes.Repeat([]byte{5}, 32)
	m := must.Get(seal.ParseMaster("m1 " + base64.StdEncoding.EncodeToString(master)))(t)
	key, record := m.Make(m.Name("anna"))
	r := must.Get(m.Read(key, record))(t)
	value := seal.NewKey(r.ID, r.Secret, r.Secret.Nonces()).Append(nil, "/context", []byte(sealedPlain))
	if _, forgotten := m.Forget(m.Name("anna"), time.Now()); bytes.Contains(forgotten, []byte(`"key"`)) {
		t.Errorf("a mark looks like a key: %s", forgotten)
	}
	return sealedExample{string(key), string(record), strings.Trim(string(value), `"`), hex.EncodeToString(master)}
}

// TestUnsealRecipes runs the code of the documents that decrypts values: it opens a value, but
// neither a forgotten one nor one whose key was deleted. It takes no plain value for a forgotten one.
func TestUnsealRecipes(t *testing.T) {
	t.Parallel()
	recipe := func(language, has string) string {
		blocks := documentBlocks(t, language)
		i := slices.IndexFunc(blocks, func(b string) bool { return strings.Contains(b, has) })
		if i < 0 {
			t.Fatalf("no code in %s has %s", language, has)
		}
		return blocks[i]
	}
	x := newSealedExample(t)
	check := func(t *testing.T, cmd *exec.Cmd) {
		t.Helper()
		const want = sealedPlain + "\nforgotten\nforgotten\nplain\n"
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%v\n%s\nwant\n%s", err, out, want)
		}
	}
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		python, dir := tool(t, "TEST_PYTHON", "python3"), t.TempDir()
		if err := exec.CommandContext(t.Context(), python, "-c", "import cryptography").Run(); err != nil {
			t.Skip("cryptography is not installed")
		}
		write(t, filepath.Join(dir, "unseal.py"), recipe("python", "def open_value")+fmt.Sprintf(`
def show(text):
    plain = open_value("/context", text)
    print("forgotten" if plain is None else json.dumps(plain, separators=(",", ":")))

read_key({"m1": bytes.fromhex(%q)}, %q.encode(), %q)
show(%q)
show("eb1:forgotten")
read_key({}, %q.encode(), None)
show(%q)
try:
    show("tel:+1:2")
except ValueError:
    print("plain")
`, x.master, x.key, x.record, x.value, x.key, x.value))
		check(t, exec.CommandContext(t.Context(), python, filepath.Join(dir, "unseal.py")))
	})
	t.Run("java", func(t *testing.T) {
		t.Parallel()
		compiler, dir := tool(t, "TEST_JAVAC", "javac"), t.TempDir()
		source := filepath.Join(dir, "Unseal.java")
		write(t, source, recipe("java", "class Unseal")+fmt.Sprintf(`
class Main {
  public static void main(String[] args) throws Exception {
    Unseal unseal = new Unseal();
    unseal.readKey(Map.of("m1", HexFormat.of().parseHex(%q)), %q, %q);
    for (String text : List.of(%q, "eb1:forgotten")) {
      String plain = unseal.open("/context", text);
      System.out.println(plain == null ? "forgotten" : plain);
    }
    unseal.readKey(Map.of(), %q, null);
    System.out.println(unseal.open("/context", %q) == null ? "forgotten" : "open");
    try {
      System.out.println(unseal.open("/context", "tel:+1:2"));
    } catch (IllegalArgumentException e) {
      System.out.println("plain");
    }
  }
}
`, x.master, x.key, x.record, x.value, x.key, x.value))
		if out, err := exec.CommandContext(t.Context(), compiler, "-d", dir, source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		check(t, exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(compiler), "java"), "-cp", dir, "Main"))
	})
}
