package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

// registryRelease is the Apicurio Registry that tests run.
const registryRelease = "2.6.13.Final"

// Registry is a running Apicurio Registry, which serves the API of Confluent's schema registry. It
// keeps schemas in memory.
type Registry struct {
	process process
	ports   *portBlock
	addr    string
}

// StartRegistry starts a schema registry for the length of the test. The first time on a machine
// it downloads the registry, about 140 MB, from Maven Central.
func StartRegistry(t testing.TB) *Registry {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), launchTimeout)
	defer cancel()
	r := new(Registry)
	t.Cleanup(func() { finish(t, r.process.tail, r.close) })
	must.Do(t, r.launch(ctx, t.TempDir()))
	return r
}

// URL is the value of SCHEMA_REGISTRY_URL.
func (r *Registry) URL() string { return "http://" + r.addr + "/apis/ccompat/v7" }

func (r *Registry) launch(ctx context.Context, dir string) error {
	java, err := findProgram("java")
	if err != nil {
		return err
	}
	home, err := download(ctx, "apicurio-registry-"+registryRelease, func(_, to string) ([]string, error) {
		return []string{
			"dependency:unpack", "-Dartifact=io.apicurio:apicurio-registry-app:" + registryRelease + ":zip:all",
			"-DoutputDirectory=" + to,
		}, nil
	})
	if err != nil {
		return err
	}
	if r.ports, err = takePorts(); err != nil {
		return err
	}
	if r.addr, err = r.ports.take(); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(r.addr) // made by takePorts
	r.process.name, r.process.log = "registry", filepath.Join(dir, "registry.log")
	r.process.args = []string{
		java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=" + host,
		"-Dquarkus.http.port=" + port, "-Djava.io.tmpdir=" + dir, "-jar",
		filepath.Join(home, "apicurio-registry-app-"+registryRelease+"-runner.jar"),
	}
	if err := r.process.start(); err != nil {
		return err
	}
	return await(ctx, r.process.exited(), r.ask)
}

func (r *Registry) ask(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL()+"/subjects", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer http.DefaultClient.CloseIdleConnections()
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the registry answers %s: %w", resp.Status, err)
	}
	return nil
}

func (r *Registry) close() error {
	err := r.process.kill()
	if r.ports != nil {
		err = errors.Join(err, r.ports.release())
	}
	return err
}
