package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"helm.sh/helm/v3/pkg/chart"
	chartloader "helm.sh/helm/v3/pkg/chart/loader"

	"exportbridge/bridge/bridgetest/must"
)

// scratch is a folder that all tests share.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "exportbridge-release"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// published returns the release of $RELEASE_DIST, or builds one of this processor, from what make build compiled.
func published(t *testing.T) *release {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("packages and images are those of Linux")
	}
	return must.Get(building())(t)
}

var building = sync.OnceValues(func() (*release, error) {
	if dist := os.Getenv("RELEASE_DIST"); dist != "" {
		binaries, err := filepath.Glob(filepath.Join(dist, "exportbridge-*-linux-"+runtime.GOARCH))
		if err != nil || len(binaries) != 1 {
			return nil, os.ErrNotExist
		}
		version := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(binaries[0]), "-linux-"+runtime.GOARCH),
			"exportbridge-")
		return &release{root: "../../..", out: dist, version: version, image: cmp.Or(os.Getenv("RELEASE_IMAGE"),
			"exportbridge")}, nil
	}
	r := sample(filepath.Join(scratch, "dist"))
	return r, r.all(context.Background())
})

func sample(out string) *release {
	const version = "v1.2.3-4-gabc123"
	return &release{
		root: "../../..", out: out, version: version, revision: "abc123", image: "exportbridge",
		when: time.Unix(1_700_000_000, 0).UTC(), platforms: []string{"linux/" + runtime.GOARCH},
		build: []string{"-pgo=cmd/exportbridge/default.pgo", "-trimpath", "-buildvcs=false", "-ldflags",
			"-s -w -X exportbridge/cmd/internal/cli.version=" + version},
	}
}

// TestReproducible: a release that is built again in another place has the same bytes.
func TestReproducible(t *testing.T) {
	t.Parallel()
	if os.Getenv("RELEASE_DIST") != "" {
		t.Skip("make release-check compares two releases")
	}
	first, again := published(t), sample(t.TempDir())
	must.Do(t, again.all(t.Context()))
	if diff := gocmp.Diff(content(t, first.out, "SHA256SUMS"), content(t, again.out, "SHA256SUMS")); diff != "" {
		t.Errorf("the second release differs (-first +second):\n%s", diff)
	}
}

func TestChecksums(t *testing.T) {
	t.Parallel()
	r := published(t)
	cmd := exec.Command("sha256sum", "--strict", "--check", "SHA256SUMS")
	cmd.Dir = r.out
	said := output(t, cmd)
	files, err := os.ReadDir(r.out)
	if got := strings.Count(said, ": OK\n"); err != nil || got != len(files)-1 {
		t.Errorf("%d checksums of %d files: %v\n%s", got, len(files)-1, err, said)
	}
}

// TestDeb installs, upgrades and removes the package in an empty root.
func TestDeb(t *testing.T) {
	t.Parallel()
	r, root, tools := published(t), t.TempDir(), t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "run/systemd/system"} {
		mkdir(t, filepath.Join(root, dir))
	}
	for _, file := range []string{"status", "available"} {
		put(t, filepath.Join(root, "var/lib/dpkg", file), "", 0o644)
	}
	put(t, filepath.Join(tools, "systemctl"), "#!/bin/sh\necho \"$@\" >>\"$DPKG_ROOT/systemctl\"\n", 0o755)
	dpkg := func(args ...string) {
		t.Helper()
		cmd := exec.Command(tool(t, "dpkg"), append([]string{"--root=" + root, "--log=/dev/null",
			"--force-script-chrootless", "--force-not-root"}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+tools+":/usr/sbin:/sbin:"+os.Getenv("PATH"), "LC_ALL=C")
		output(t, cmd)
	}
	deb := r.path("-linux-" + runtime.GOARCH + ".deb")
	dpkg("--install", deb)
	wantInstalled(t, root, r)
	settings := filepath.Join(root, "etc/exportbridge/exportbridge.env")
	put(t, settings, "KAFKA_BROKERS=kafka:9092\n", 0o640)
	dpkg("--install", deb)
	if got := content(t, root, "etc/exportbridge/exportbridge.env"); got != "KAFKA_BROKERS=kafka:9092\n" {
		t.Errorf("an upgrade replaces the settings by %q", got)
	}
	dpkg("--remove", "exportbridge")
	const restarted = "daemon-reload\ntry-restart exportbridge.service\n"
	if diff := gocmp.Diff(restarted+restarted+"disable --now exportbridge.service\n",
		content(t, root, "systemctl")); diff != "" {
		t.Errorf("systemctl (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(root, "usr/bin/exportbridge")); err == nil {
		t.Error("the program stays when the package is removed")
	}
	version := strings.Replace(semantic(r.version), "-", "~", 1)
	if said := output(t, exec.Command("dpkg-deb", "--field", deb, "Package",
		"Version")); said != "Package: exportbridge\nVersion: "+version+"\n" {
		t.Errorf("the package is %q", said)
	}
}

// TestRPM installs and verifies the package in an empty root.
func TestRPM(t *testing.T) {
	t.Parallel()
	r, root, rpm := published(t), t.TempDir(), tool(t, "rpm")
	file := r.path("-linux-" + runtime.GOARCH + ".rpm")
	output(t, exec.Command(rpm, "--root", root, "--initdb"))
	output(t, exec.Command(rpm, "--root", root, "--install", "--nodeps", "--noscripts", file))
	wantInstalled(t, root, r)
	if said := output(t, exec.Command(rpm, "--root", root, "--verify", "--nodeps", "--noscripts",
		"exportbridge")); said != "" {
		t.Errorf("rpm --verify:\n%s", said)
	}
	if said := output(t, exec.Command(rpm, "--query", "--package", "--configfiles",
		file)); said != "/etc/exportbridge/exportbridge.env\n" {
		t.Errorf("settings: %q", said)
	}
	if said := output(t, exec.Command(rpm, "--query", "--package", "--scripts", file)); !strings.Contains(said,
		"try-restart") || !strings.Contains(said, "disable --now") {
		t.Errorf("scripts: %s", said)
	}
}

// wantInstalled runs the files that a package has installed below root.
func wantInstalled(t *testing.T, root string, r *release) {
	t.Helper()
	binary := filepath.Join(root, "usr/bin/exportbridge")
	if said := output(t, exec.Command(binary, "version")); !strings.HasPrefix(said, "exportbridge "+r.version+" ") {
		t.Errorf("version: %q", said)
	}
	cmd := exec.Command(binary, "config", "show", "--env-file", filepath.Join(root, "etc/exportbridge/exportbridge.env"))
	cmd.Env = []string{"EXPORT_API_KEY=k"}
	output(t, cmd)
	unit := filepath.Join(t.TempDir(), "exportbridge.service")
	text := content(t, root, "usr/lib/systemd/system/exportbridge.service")
	put(t, unit, strings.ReplaceAll(text, "ExecStart=/usr/bin/exportbridge ", "ExecStart="+binary+" "), 0o600)
	if said := output(t, exec.Command(tool(t, "systemd-analyze"), "verify", "--man=no", unit)); said != "" ||
		!strings.Contains(text, "=/usr/bin/exportbridge run") {
		t.Errorf("the unit: %s", said)
	}
	for _, name := range []string{"doc/exportbridge/copyright", "doc/exportbridge/THIRD_PARTY_NOTICES.txt",
		"man/man1/exportbridge.1.gz", "bash-completion/completions/exportbridge"} {
		if content(t, root, "usr/share/"+name) == "" {
			t.Errorf("%s is empty", name)
		}
	}
}

// TestShare: the man pages render without a warning, bash loads the completions.
func TestShare(t *testing.T) {
	t.Parallel()
	r, root := published(t), t.TempDir()
	unpack(t, root, gunzip(t, r.path("-share.tar.gz")))
	pages, err := filepath.Glob(filepath.Join(root, "share/man/man1/*"))
	if err != nil || len(pages) < 30 {
		t.Errorf("%d man pages, %v", len(pages), err)
	}
	for _, page := range pages {
		cmd := exec.Command(tool(t, "man"), "--warnings", "--local-file", page)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80")
		said, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(said, []byte("\nNAME\n")) || bytes.Contains(said, []byte("warning:")) {
			t.Errorf("%s: %v\n%s", page, err, said)
		}
	}
	const load = `source "$1" && complete -p exportbridge`
	if said := output(t, exec.Command("bash", "--norc", "-c", load, "bash",
		filepath.Join(root, "share/bash-completion/completions/exportbridge"))); !strings.Contains(said,
		"__start_exportbridge") {
		t.Errorf("completion: %s", said)
	}
}

// TestImages unpacks the images and runs in their root, as their user, the demo of one and
// the program of the other.
func TestImages(t *testing.T) {
	t.Parallel()
	r := published(t)
	dev, devConfig := image(t, r, "exportbridge-dev")
	root, config := image(t, r, "exportbridge")
	for _, c := range []v1.Config{config, devConfig} {
		if c.User != "65532:65532" || c.Labels["org.opencontainers.image.version"] != r.version {
			t.Errorf("user %s, labels %q", c.User, c.Labels)
		}
	}
	if diff := gocmp.Diff([]string{"/exportbridge", "run"}, append(config.Entrypoint, config.Cmd...)); diff != "" {
		t.Errorf("the image runs (-want +got):\n%s", diff)
	}
	for _, file := range []string{"etc/ssl/certs/ca-certificates.crt", "usr/share/zoneinfo/Europe/Berlin",
		"licenses/LICENSE", "licenses/THIRD_PARTY_NOTICES.txt"} {
		if content(t, root, file) == "" {
			t.Errorf("%s is empty", file)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("only root can run a program in another root")
	}
	demo := inside(t.Context(), dev, devConfig, "demo", "--kafka-addr", "127.0.0.1:0", "--redis-addr", "127.0.0.1:0")
	out := must.Get(demo.StdoutPipe())(t)
	must.Do(t, demo.Start())
	kafka, lines := "", bufio.NewScanner(out)
	for kafka == "" && lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "Kafka" {
			kafka = strings.TrimSuffix(fields[1], ",")
		}
	}
	tail := inside(t.Context(), root, config, "tail", "-n", "5", "-o", "end", "--json")
	tail.Env = append(tail.Env, "KAFKA_BROKERS="+kafka)
	if said := output(t, tail); strings.Count(said, "\n") != 5 {
		t.Errorf("tail prints %q", said)
	}
	_ = demo.Process.Signal(os.Interrupt)
	_, _ = io.Copy(io.Discard, out)
	if err := demo.Wait(); err != nil {
		t.Errorf("the demo ends with %v", err)
	}
}

// image unpacks an image of the release.
func image(t *testing.T, r *release, program string) (root string, config v1.Config) {
	t.Helper()
	tag := must.Get(name.NewTag(r.image + strings.TrimPrefix(program, "exportbridge") + ":" + r.version))(t)
	got := must.Get(tarball.ImageFromPath(filepath.Join(r.out, program+"-"+r.version+"-linux-"+runtime.GOARCH+"-image.tar"),
		&tag))(t)
	file := must.Get(got.ConfigFile())(t)
	root = filepath.Join(scratch, program) // of $TMPDIR, which others than root may enter
	flat := mutate.Extract(got)
	defer flat.Close()
	unpack(t, root, flat)
	for _, dir := range []string{scratch, root} {
		must.Do(t, os.Chmod(dir, 0o755))
	}
	return root, file.Config
}

// inside is a run of an image: its entry point, in its root, as its user.
func inside(ctx context.Context, root string, config v1.Config, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, config.Entrypoint[0], args...)
	cmd.Dir, cmd.Env, cmd.Stderr = "/", append([]string{"HOME=/tmp"}, config.Env...), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// TestChartPublished: the released chart has the version and image of the release.
func TestChartPublished(t *testing.T) {
	t.Parallel()
	r := published(t)
	chart := must.Get(chartloader.Load(filepath.Join(r.out, "exportbridge-"+semantic(r.version)+".tgz")))(t)
	image := chart.Values["image"].(map[string]any)["repository"]
	if chart.Metadata.Version != semantic(r.version) || chart.Metadata.AppVersion != r.version || image != r.image ||
		chart.Validate() != nil {
		t.Errorf("version %s, appVersion %s, image %v: %v", chart.Metadata.Version, chart.Metadata.AppVersion, image,
			chart.Validate())
	}
}

// TestComposeFile: the released compose file starts released images, and mounts what is
// beside it.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	r, root := published(t), t.TempDir()
	unpack(t, root, gunzip(t, r.path("-compose.tar.gz")))
	root = filepath.Join(root, "exportbridge-"+r.version)
	put(t, filepath.Join(root, ".env"), content(t, root, "simulator.env"), 0o600)
	project := must.Get(loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: root, ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(root, "docker-compose.yml")}},
		Environment: types.Mapping{"EXPORT_API_KEY": "any"},
	}, func(o *loader.Options) { o.SetProjectName("test", true); o.Profiles = []string{"*"} }))(t)
	for name, service := range project.Services {
		if service.Build != nil {
			t.Errorf("%s is built", name)
		}
		for _, v := range service.Volumes {
			if v.Type == types.VolumeTypeBind {
				if _, err := os.Stat(v.Source); err != nil {
					t.Errorf("%s mounts %v", name, err)
				}
			}
		}
	}
	for service, want := range map[string]string{"bridge": r.image + ":", "simulator": r.image + "-dev:"} {
		if got := project.Services[service].Image; got != want+r.version {
			t.Errorf("%s is of the image %s", service, got)
		}
	}
}

// TestBill: the bill of materials has the modules of the programs, with version and hash, and that of
// the demo's Redis.
func TestBill(t *testing.T) {
	t.Parallel()
	r := published(t)
	bill := new(cyclonedx.BOM)
	must.Do(t, json.Unmarshal([]byte(content(t, r.path(".cdx.json"))), bill))
	info := output(t, exec.Command("go", "version", "-m", r.path("-linux-"+runtime.GOARCH)))
	if want := strings.Count(info, "\tdep\t") + 1; len(*bill.Components) < want {
		t.Errorf("%d components, the program has %d", len(*bill.Components), want)
	}
	sums, demo := content(t, "../../../go.sum"), false
	for _, part := range *bill.Components {
		if part.Name != "stdlib" && (part.Hashes == nil || !strings.Contains(sums, part.Name+" "+part.Version+" h1:")) &&
			os.Getenv("RELEASE_DIST") == "" {
			t.Errorf("%s has no hash, or is not in go.sum", part.BOMRef)
		}
		demo = demo || part.Name == "github.com/alicebob/miniredis/v2"
	}
	if !demo {
		t.Error("the modules of exportbridge-dev are missing")
	}
}

func TestSemantic(t *testing.T) {
	t.Parallel()
	for described, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "v1.2.3-4-gabc123": "1.2.3+4.gabc123",
		"v1.2.3-rc.1-4-gabc123-dirty": "1.2.3-rc.1+4.gabc123.dirty",
		"v1.2.3-dirty":                "1.2.3+dirty", "f54da5f": "0.0.0-git.f54da5f", "f54da5f-dirty": "0.0.0-git.f54da5f.dirty",
		"0123456": "0.0.0-git.g0123456", "1234567": "0.0.0-git.1234567", "unknown": "0.0.0-git.unknown",
	} {
		got := semantic(described)
		if got != want {
			t.Errorf("semantic(%q) = %q, want %q", described, got, want)
		}
		if err := (&chart.Metadata{Name: "x", Version: got, APIVersion: chart.APIVersionV2}).Validate(); err != nil {
			t.Errorf("a chart of %s: %v", described, err)
		}
	}
}

// tool finds a program that the test needs.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

// output runs a command that has to succeed.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v\n%s%s", cmd.Args, err, &out, &problem)
	}
	return out.String()
}

func content(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(text), mode))
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	must.Do(t, os.MkdirAll(path, 0o755))
}

func gunzip(t *testing.T, path string) io.Reader {
	t.Helper()
	return must.Get(gzip.NewReader(strings.NewReader(content(t, path))))(t)
}

// unpack writes what a tar archive has below root, with its owners where root runs this.
func unpack(t *testing.T, root string, from io.Reader) {
	t.Helper()
	mkdir(t, root)
	archive := tar.NewReader(from)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, h.Name)
		mkdir(t, filepath.Dir(to))
		if h.Typeflag == tar.TypeDir {
			mkdir(t, to)
		} else {
			text := must.Get(io.ReadAll(archive))(t)
			put(t, to, string(text), 0o600)
		}
		must.Do(t, os.Chmod(to, h.FileInfo().Mode()))
		if os.Getuid() == 0 {
			must.Do(t, os.Chown(to, h.Uid, h.Gid))
		}
	}
}
