package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/sr"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/contract"
)

// registryTimeout bounds a request to the registry.
const registryTimeout = 30 * time.Second

// registration is what schema register did, or would do.
type registration struct {
	Subject string `json:"subject"`
	// State is registered if the registry has the schema, else new or changed.
	State   string `json:"state"`
	ID      int    `json:"id,omitempty"`
	Version int    `json:"version,omitempty"`
	// Changed reports whether this command registered the schema.
	Changed bool `json:"changed"`
}

func newRegisterCommand(a *cli.App) *cobra.Command {
	var stream, topic string
	var execute bool
	cmd := &cobra.Command{
		Use:   "register",
		Short: "Register the JSON Schema in a schema registry",
		Long: `Register the JSON Schema in EVENT_SCHEMA_FILE in the schema registry of
SCHEMA_REGISTRY_URL, with the subject TOPIC-value. Without --execute, show
whether the registry has the schema, and whether it would accept it.

Records carry no schema id, so deserializers that expect one cannot read them:
the registry documents the events. The exit code is 5 if the registry refuses
the schema.`,
		Example: `  exportbridge schema register
  exportbridge schema register --execute`,
		Args: cli.NoArgs,
	}
	a.TakeSettings(cmd)
	cli.TakeStream(cmd, &stream)
	takeTopic(cmd, &topic)
	asJSON := cli.TakeJSON(cmd)
	cli.TakeExecute(cmd, &execute)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, st, err := a.StreamSettings(0, stream)
		if err != nil {
			return err
		}
		if err := choose(st, topic); err != nil {
			return err
		}
		if err := requireSchema(st); err != nil {
			return err
		}
		registry, err := openRegistry(&s.Registry, a.Name)
		if err != nil {
			return err
		}
		done := registration{Subject: st.Kafka.Topic + "-value"}
		if err := done.run(cmd.Context(), registry, st.Contract.Schema, execute); err != nil {
			return registryError(err)
		}
		if *asJSON {
			return cli.PrintJSON(a.Stdout, done)
		}
		return done.print(a)
	}
	return cmd
}

// openRegistry returns a client of the registry. It contacts no server, and follows no
// redirects, which could lead a password elsewhere.
func openRegistry(c *contract.Registry, name string) (*sr.Client, error) {
	if len(c.URLs) == 0 {
		return nil, cli.WrongUsage("set SCHEMA_REGISTRY_URL=https://registry.example:8081", "SCHEMA_REGISTRY_URL is not set")
	}
	trusted, err := c.TLS().Config()
	if err != nil {
		return nil, err
	}
	opts := []sr.ClientOpt{
		sr.URLs(c.URLs...), sr.UserAgent(name), sr.DialTLSConfig(trusted), sr.DefaultParams(sr.Verbose),
		sr.HTTPClient(&http.Client{
			Timeout:       registryTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
	}
	if c.User != "" {
		opts = append(opts, sr.BasicAuth(c.User, c.Password.Reveal()))
	}
	return sr.NewClient(opts...)
}

// run finds out whether the registry has the schema and would accept it. It registers the
// schema if execute is set.
func (r *registration) run(ctx context.Context, registry *sr.Client, text string, execute bool) error {
	schema := sr.Schema{Schema: text, Type: sr.TypeJSON}
	found, err := registry.LookupSchema(ctx, r.Subject, schema)
	switch refused, _ := errors.AsType[*sr.ResponseError](err); {
	case err == nil && found.Version < 1:
		return fmt.Errorf("look up subject %s: the answer has no version", r.Subject)
	case err == nil:
		r.State, r.ID, r.Version = "registered", found.ID, found.Version
		return nil
	case refused == nil:
		return fmt.Errorf("look up subject %s: %w", r.Subject, err)
	case refused.ErrorCode == sr.ErrSubjectNotFound.Code:
		r.State = "new"
	case refused.ErrorCode == sr.ErrSchemaNotFound.Code:
		r.State = "changed"
		fits, err := registry.CheckCompatibility(ctx, r.Subject, -1, schema)
		if err != nil {
			return fmt.Errorf("check the compatibility of subject %s: %w", r.Subject, err)
		}
		if !fits.Is {
			return cli.Errorf(cli.ExitRefused, "correct the schema, or change the compatibility of the subject in the registry",
				"the schema is incompatible with the latest one of subject %s: %s", r.Subject,
				cmp.Or(strings.Join(fits.Messages, "; "), "the registry gives no reason"))
		}
	default:
		return fmt.Errorf("look up subject %s: %w", r.Subject, err)
	}
	if !execute {
		return nil
	}
	if _, err := registry.RegisterSchema(ctx, r.Subject, schema, -1, -1); err != nil {
		return fmt.Errorf("register subject %s: %w", r.Subject, err)
	}
	if found, err = registry.LookupSchema(ctx, r.Subject, schema); err != nil {
		return fmt.Errorf("look up registered subject %s: %w", r.Subject, err)
	}
	r.ID, r.Version, r.Changed = found.ID, found.Version, true
	return nil
}

// registryError adds the exit code and the hint to an error of the registry, whose body may be
// a page of a proxy.
func registryError(err error) error {
	if _, known := errors.AsType[*cli.Error](err); known || errors.Is(err, context.Canceled) {
		return err
	}
	code, hint := cli.ExitFailed, "check SCHEMA_REGISTRY_URL and SCHEMA_REGISTRY_TLS_CA_FILE"
	refused, ok := errors.AsType[*sr.ResponseError](err)
	if !ok {
		return cli.Errorf(code, hint, "%w", err)
	}
	switch status := refused.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		code, hint = cli.ExitRefused, "check SCHEMA_REGISTRY_USERNAME and SCHEMA_REGISTRY_PASSWORD_FILE"
	case status < http.StatusInternalServerError && status != http.StatusTooManyRequests:
		code, hint = cli.ExitRefused, "check SCHEMA_REGISTRY_URL and the schema"
	default:
		hint = "repeat the command"
	}
	return cli.Errorf(code, hint, "the registry answered %d: %.500s", refused.StatusCode, err.Error())
}

func (r *registration) print(a *cli.App) error {
	text := fmt.Sprintf("  subject %s: the schema is registered, id %d, version %d", r.Subject, r.ID, r.Version)
	switch {
	case r.State == "registered" || r.Changed:
	case r.State == "new":
		text = fmt.Sprintf("  subject %s: does not exist", r.Subject)
	default:
		text = fmt.Sprintf("  subject %s: the schema is new, and compatible with the latest one", r.Subject)
	}
	if _, err := fmt.Fprintln(a.Stdout, text); err != nil {
		return err
	}
	if r.State != "registered" && !r.Changed {
		fmt.Fprintln(a.Stderr, "dry run: nothing was changed. Add --execute to register the schema.")
	}
	return nil
}
