package setup

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/process"
)

const (
	// healthTimeout bounds the answer.
	healthTimeout = 2 * time.Second
	// healthLine bounds the first line of an answer, in bytes.
	healthLine = 4 << 10
)

// NewHealthcheckCommand returns the command that checks the readiness of a process.
func NewHealthcheckCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck [URL]",
		Short: "Check readiness of the local bridge",
		Long: `Check readiness of the local bridge, at /readyz of HTTP_PROBE_ADDR, else of
HTTP_ADDR, or at the URL. The exit code is 0 if it is ready; otherwise it is 1,
with the reason on standard error. Made for container images without a shell.`,
		Example: "  " + a.Name + " healthcheck\n" +
			"  " + a.Name + " healthcheck http://127.0.0.1:8080/livez",
		GroupID: cli.GroupSetup,
		Args:    cobra.MaximumNArgs(1),
	}
	a.TakeSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target, err := healthURL(a, args)
		if err != nil {
			return cli.Errorf(cli.ExitFailed, a.Name+" healthcheck http://127.0.0.1:8080/readyz", "%w", err)
		}
		return askHealth(cmd.Context(), a.Name, target, len(args) == 0)
	}
	return cmd
}

// healthURL is the URL to request: the argument, or /readyz of HTTP_PROBE_ADDR or HTTP_ADDR.
func healthURL(a *cli.App, args []string) (string, error) {
	if len(args) == 0 {
		s, err := a.Settings(0, nil)
		if err != nil {
			return "", err
		}
		switch {
		case s.HTTP.ProbeAddr != "":
			return readyURL("http", "HTTP_PROBE_ADDR", s.HTTP.ProbeAddr)
		case s.HTTP.Off():
			return "", errors.New("HTTP_ADDR is off: health endpoints are disabled")
		case s.HTTP.TLS():
			return readyURL("https", "HTTP_ADDR", s.HTTP.Addr)
		}
		return readyURL("http", "HTTP_ADDR", s.HTTP.Addr)
	}
	u, err := url.Parse(args[0])
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%q is not a URL such as http://127.0.0.1:8080/readyz", args[0])
	}
	if u.Path == "" {
		u.Path = "/readyz"
	}
	return u.String(), nil
}

// readyURL is the readiness endpoint of a local server that listens at the address of a
// setting.
func readyURL(scheme, setting, addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("%s: %w", setting, err)
	}
	if port == "0" {
		return "", fmt.Errorf("%s has a random port: give the URL, such as http://127.0.0.1:8080/readyz", setting)
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "", err == nil && ip.IsUnspecified() && ip.Is4():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return scheme + "://" + net.JoinHostPort(host, port) + "/readyz", nil
}

// askHealth returns nil if the answer is 200. Its hints are for the program of this name. The
// server of the settings is own: the names in its certificate need not include the address
// at which it listens, and the request has no secret.
func askHealth(ctx context.Context, program, target string, own bool) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", target, err)
	}
	client := &http.Client{
		// No proxy: the server is on this machine.
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: own}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer from %s within %s", target, healthTimeout)
		}
		hint := "start the process, or name its address: HTTP_ADDR, or " + program + " healthcheck URL"
		return cli.Errorf(cli.ExitFailed, hint, "not ready: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	if resp.StatusCode == http.StatusSwitchingProtocols { // its body is a bare connection without a time-out
		resp.Body = http.NoBody
	}
	hint := "exportbridge status"
	switch resp.StatusCode {
	case http.StatusServiceUnavailable:
	case http.StatusMisdirectedRequest:
		hint = "add this host to HTTP_ALLOWED_HOSTS of the bridge, or ask it as localhost"
	default: // another server, or another path
		hint = program + " healthcheck http://127.0.0.1:8080/readyz"
	}
	return cli.Errorf(cli.ExitFailed, hint, "not ready: %s: %s", resp.Status, firstLine(resp.Body))
}

// firstLine returns the first line of an answer in printable form.
func firstLine(r io.Reader) string {
	line, err := bufio.NewReader(io.LimitReader(r, healthLine)).ReadString('\n')
	if err != nil && line == "" {
		return "no reason given"
	}
	return process.Printable(strings.TrimSpace(line))
}
