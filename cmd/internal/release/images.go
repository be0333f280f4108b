package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody is the user of the images, numeric so that Kubernetes can verify runAsNonRoot.
const nobody = 65532

// images writes the images of both programs in the form that docker load reads.
func (r *release) images(ctx context.Context, binary, arch string) error {
	stage, err := os.MkdirTemp("", "exportbridge-images")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	dev := filepath.Join(stage, "exportbridge-dev")
	if err := r.compile(ctx, "exportbridge-dev", dev, "linux", arch); err != nil {
		return err
	}
	base, err := r.base(ctx, arch)
	if err != nil {
		return err
	}
	bridge := program{"exportbridge", r.image, "run", "shared/", []string{"HTTP_ADDR=:8080"}}
	demo := program{"exportbridge-dev", r.image + "-dev", "demo", "data/", nil}
	return errors.Join(r.saveImage(base, binary, arch, bridge), r.saveImage(base, dev, arch, demo))
}

// program is the program of an image. The program can write to its folder, because a volume
// that is mounted there inherits the owner.
type program struct {
	name, repository, command, folder string
	env                               []string
}

func (r *release) saveImage(base v1.Image, binary, arch string, p program) error {
	tag, err := name.NewTag(p.repository + ":" + r.version)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	image, err := r.layer(base, []file{
		{name: p.name, mode: 0o755, text: content}, {name: p.folder, mode: 0o755, user: nobody},
	})
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.Config.Entrypoint, config.Config.Cmd = []string{"/" + p.name}, []string{p.command}
	config.Config.Env = append(config.Config.Env, p.env...)
	config.Config.Labels["org.opencontainers.image.title"] = p.name
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	return tarball.WriteToFile(filepath.Join(r.out, p.name+"-"+r.version+"-linux-"+arch+"-image.tar"), tag, image)
}

// base returns the image below both: root certificates, time zones, licences and a user, but
// no program.
func (r *release) base(ctx context.Context, arch string) (v1.Image, error) {
	files, err := zones(ctx)
	if err != nil {
		return nil, err
	}
	files = append(files,
		file{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, text: certificates()},
		file{name: "etc/passwd", mode: 0o644, text: []byte("root:x:0:0:root:/root:/sbin/nologin\n" +
			"nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		file{name: "etc/group", mode: 0o644, text: []byte("root:x:0:\nnonroot:x:65532:\n")},
		file{name: "tmp/", mode: 0o1777},
	)
	for _, path := range []string{"LICENSE", "cmd/exportbridge/THIRD_PARTY_NOTICES.txt"} {
		text, err := r.source(path)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "licenses/" + filepath.Base(path), mode: 0o644, text: text})
	}
	config := &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: r.when},
		Config: v1.Config{
			User: "65532:65532", Env: []string{"PATH=/"}, WorkingDir: "/",
			ExposedPorts: map[string]struct{}{"8080/tcp": {}},
			Labels: map[string]string{
				"org.opencontainers.image.description": "Turns a paginated export API into a Kafka topic, exactly once",
				"org.opencontainers.image.licenses":    "Apache-2.0",
				"org.opencontainers.image.version":     r.version,
				"org.opencontainers.image.revision":    r.revision,
			},
		},
		RootFS: v1.RootFS{Type: "layers"},
	}
	image, err := mutate.ConfigFile(empty.Image, config)
	if err != nil {
		return nil, err
	}
	return r.layer(image, files)
}

// layer puts the files on top of an image.
func (r *release) layer(image v1.Image, files []file) (v1.Image, error) {
	content, err := archive(files, r.when)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	layer, err := tarball.LayerFromOpener(open)
	if err != nil {
		return nil, err
	}
	history := v1.History{Created: v1.Time{Time: r.when}, CreatedBy: "make release"}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: history})
}

// certificates returns Mozilla's root certificates. It leaves out those that Mozilla trusts only
// under conditions, because a file of certificates cannot state the conditions.
func certificates() []byte {
	var out []byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	return out
}

// zones returns the time zones that come with Go.
func zones(ctx context.Context) ([]file, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	packed, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, err
	}
	defer packed.Close()
	var files []file
	for _, f := range packed.File {
		in, err := f.Open()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(in)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "usr/share/zoneinfo/" + f.Name, mode: 0o644, text: text})
	}
	return files, nil
}
