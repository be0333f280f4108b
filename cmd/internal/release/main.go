// Command release builds all published files of a version: binaries, packages, container
// images, documents, a bill of materials, and their checksums. It is a separate module, so that
// users of the library do not get the libraries of this command.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// release is one version. Its files depend only on these fields, the sources and the toolchain.
type release struct {
	root, out         string // folders of the sources and of the result
	version, revision string // from git, for people
	image             string // name of the image without a tag; the image of exportbridge-dev adds -dev
	when              time.Time
	platforms         []string               // os/arch
	build             []string               // arguments of go build
	built             []*buildinfo.BuildInfo // of the programs that are compiled
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	r, err := parse(os.Args[1:])
	if err == nil {
		err = r.all(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*release, error) {
	r := new(release)
	flags := flag.NewFlagSet("release", flag.ExitOnError)
	flags.StringVar(&r.root, "root", "../../..", "folder of the sources")
	flags.StringVar(&r.out, "out", "", "folder of the result, made anew")
	flags.StringVar(&r.version, "version", "", "what git describe says")
	flags.StringVar(&r.revision, "revision", "", "the commit")
	flags.StringVar(&r.image, "image", "exportbridge", "name of the image, without a tag")
	platforms := flags.String("platforms", "", "os/arch, separated by spaces")
	epoch := flags.Int64("epoch", 0, "time of the commit in seconds since 1970, of all files")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	r.when, r.platforms, r.build = time.Unix(*epoch, 0).UTC(), strings.Fields(*platforms), flags.Args()
	if r.out == "" || r.version == "" || len(r.platforms) == 0 {
		return nil, errors.New("-out, -version and -platforms are required: run make release")
	}
	return r, nil
}

// all builds everything into an empty folder.
func (r *release) all(ctx context.Context) error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"LICENSE", "cmd/exportbridge/THIRD_PARTY_NOTICES.txt"} {
		text, err := r.source(name)
		if err == nil {
			err = r.write(filepath.Base(name), text)
		}
		if err != nil {
			return err
		}
	}
	for _, platform := range r.platforms {
		goos, arch, _ := strings.Cut(platform, "/")
		binary := r.path("-" + goos + "-" + arch)
		if goos == "windows" {
			binary += ".exe"
		}
		if err := r.compile(ctx, "exportbridge", binary, goos, arch); err != nil {
			return err
		}
		if goos != "linux" {
			continue
		}
		if err := errors.Join(r.packages(binary, arch), r.images(ctx, binary, arch)); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}
	return errors.Join(r.share(), r.compose(), r.chart(), r.bill(), r.checksums())
}

// compile builds a program for a platform.
func (r *release) compile(ctx context.Context, program, to, goos, arch string) error {
	fmt.Println(filepath.Base(to))
	args := append([]string{"build"}, r.build...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", to, "./cmd/"+program)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.root, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch)
	if err := cmd.Run(); err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(to)
	r.built = append(r.built, info)
	return err
}

// path returns the path of a file of the result: suffix follows the version in its name.
func (r *release) path(suffix string) string {
	return filepath.Join(r.out, "exportbridge-"+r.version+suffix)
}

// source reads a file of the sources.
func (r *release) source(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(r.root, name))
}

// write writes a file into the folder of the result.
func (r *release) write(name string, text []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), text, 0o644)
}

// checksums writes SHA256SUMS of all files, in the form of sha256sum.
func (r *release) checksums() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), f.Name())
	}
	return r.write("SHA256SUMS", sums.Bytes())
}

var described = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)[0-9.]*)?)(?:-(\d+)-g([0-9a-f]+))?(-dirty)?$`)

// semantic turns a version of git describe into a semantic version, which packages and charts
// require. v1.2.0-4-gabc, four commits after v1.2.0, becomes 1.2.0+4.gabc. A commit without an
// earlier release becomes a pre-release of 0.0.0.
func semantic(version string) string {
	m := described.FindStringSubmatch(version)
	if m == nil {
		parts := regexp.MustCompile(`[0-9A-Za-z]+`).FindAllString(version, -1)
		for i, p := range parts {
			if len(p) > 1 && p[0] == '0' && strings.Trim(p, "0123456789") == "" { // no number begins with 0
				parts[i] = "g" + p
			}
		}
		return "0.0.0-git." + strings.Join(parts, ".")
	}
	var build []string
	if m[2] != "" {
		build = append(build, m[2], "g"+m[3])
	}
	if m[4] != "" {
		build = append(build, "dirty")
	}
	if build == nil {
		return m[1]
	}
	return m[1] + "+" + strings.Join(build, ".")
}
