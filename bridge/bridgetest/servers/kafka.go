package servers

import (
	"context"
	"errors"
	"exportbridge/bridge/bridgetest/faultproxy"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The user of the secure listeners.
const (
	KafkaUser     = "bridge"
	KafkaPassword = "bridge-secret"
)

// KafkaOptions describe the Kafka that a test needs. The brokers of TEST_KAFKA_BROKERS, if
// set, are used for options that set only Brokers.
type KafkaOptions struct {
	// Brokers is the number of brokers, 1 to 5; default 1.
	Brokers int
	// TLS and SASL add a listener to each broker, see Kafka.SecureAddrs. With SASL,
	// KafkaUser logs in with KafkaPassword by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
	// OAUTHBEARER takes unsigned tokens, or those of Issuer.
	TLS, SASL bool
	// Issuer, if not nil, issues the tokens of OAUTHBEARER, for the audience kafka.
	Issuer *Issuer
	// ClientCertificates makes the TLS listener require a client certificate.
	ClientCertificates bool
	// ACLs denies what no ACL allows. Clients of the plain listener may do anything.
	ACLs bool
	// RetentionCheck is how often brokers look for records to delete; default
	// Kafka's 5 minutes.
	RetentionCheck time.Duration
	// Proxy gets a listener of each broker behind it. The plain listener stays outside of
	// the proxy.
	Proxy *faultproxy.KafkaProxy
	// Properties are further broker settings. They take precedence.
	Properties map[string]string
	// Own requests servers that the caller may kill.
	Own bool

	archive string // the file that the broker writes its classes to when it ends
}

// foreign reports whether the brokers of TEST_KAFKA_BROKERS satisfy the options.
func (o KafkaOptions) foreign() bool {
	return !o.TLS && !o.SASL && !o.ACLs && !o.Own && o.Proxy == nil && o.RetentionCheck == 0 && len(o.Properties) == 0
}

// Kafka is a running Apache Kafka. Brokers are counted from 0. One goroutine
// may use it at a time.
type Kafka struct {
	// Certificates are those of the secure listeners; nil without TLS.
	Certificates *Certificates

	foreign []string // addresses of the brokers of TEST_KAFKA_BROKERS
	options KafkaOptions
	brokers []*broker
	ports   *portBlock
	java    string
	jars    string
	archive string // see classArchive
	feature string // see kafkaRelease
	dir     string
}

// LaunchKafka starts brokers and returns when all of them answer. The first launch on a
// machine downloads Kafka, about 45 MB, from Maven Central. The caller must Close it. On
// Linux, the brokers end with this process.
func LaunchKafka(ctx context.Context, o KafkaOptions) (*Kafka, error) {
	if list := os.Getenv("TEST_KAFKA_BROKERS"); list != "" && o.foreign() {
		k := &Kafka{foreign: strings.Split(list, ",")}
		if err := waitForKafka(ctx, k.foreign[0], 1, nil); err != nil {
			return nil, fmt.Errorf("reach TEST_KAFKA_BROKERS %s: %w", list, err)
		}
		return k, nil
	}
	if o.Brokers == 0 {
		o.Brokers = 1
	}
	if o.Brokers < 1 || o.Brokers > 5 {
		return nil, fmt.Errorf("launch Kafka: %d brokers, want 1 to 5", o.Brokers)
	}
	k := &Kafka{options: o}
	if err := k.launch(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("launch Kafka: %w", err), k.Close())
	}
	return k, nil
}

func (k *Kafka) launch(ctx context.Context) error {
	if err := k.prepare(ctx); err != nil {
		return err
	}
	for _, b := range k.brokers {
		if err := b.start(); err != nil {
			return err
		}
	}
	return k.Ready(ctx)
}

// prepare finds the programs, reserves ports and formats the brokers' folders.
func (k *Kafka) prepare(ctx context.Context) (err error) {
	if k.java, err = findProgram("java"); err != nil {
		return err
	}
	if _, k.feature, err = kafkaRelease(); err != nil {
		return err
	}
	if k.jars, err = KafkaJars(ctx); err != nil {
		return err
	}
	if k.options.archive == "" {
		if k.archive, err = classArchive(ctx, k.jars); err != nil {
			return err
		}
	}
	if k.dir, err = os.MkdirTemp("", "exportbridge-kafka-*"); err != nil {
		return err
	}
	if k.options.TLS {
		if k.Certificates, err = WriteCertificates(k.dir); err != nil {
			return err
		}
	}
	if k.ports, err = takePorts(); err != nil {
		return err
	}
	if err := os.WriteFile(k.logConfig(), []byte(log4jProperties), 0o600); err != nil {
		return err
	}
	for id := range k.options.Brokers {
		b, err := k.newBroker(id)
		if err != nil {
			return err
		}
		k.brokers = append(k.brokers, b)
	}
	return k.format(ctx)
}

// format prepares the folders of all brokers at once, because each takes a second of Java.
func (k *Kafka) format(ctx context.Context) error {
	cluster := newClusterID()
	results := make(chan error, len(k.brokers))
	for _, b := range k.brokers {
		go func() { results <- k.formatBroker(ctx, b, cluster) }()
	}
	var errs []error
	for range k.brokers {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

// javaArgs are the options of each Java, for programs that live for minutes at most.
func (k *Kafka) javaArgs() []string {
	args := []string{"-XX:TieredStopAtLevel=1", "-cp", filepath.Join(k.jars, "*")}
	if k.archive != "" {
		args = append(args, "-XX:SharedArchiveFile="+k.archive)
	}
	return args
}

func (k *Kafka) formatBroker(ctx context.Context, b *broker, cluster string) error {
	file := filepath.Join(b.dir, "server.properties")
	if err := os.WriteFile(file, []byte(k.properties(b)), 0o600); err != nil {
		return fmt.Errorf("configure %s: %w", b.name, err)
	}
	args := append(k.javaArgs(), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", file)
	if k.feature != "" {
		args = append(args, "--feature", k.feature)
	}
	if k.options.SASL {
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, KafkaUser, KafkaPassword))
		}
	}
	if out, err := exec.CommandContext(ctx, k.java, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("format %s: %w\n%s", b.name, err, out)
	}
	return nil
}

// Addrs returns the addresses of the plain listeners, one per broker.
func (k *Kafka) Addrs() []string {
	if k.foreign != nil {
		return k.foreign
	}
	var addrs []string
	for _, b := range k.brokers {
		addrs = append(addrs, b.plain)
	}
	return addrs
}

// SecureAddrs returns the addresses of the listeners with TLS, SASL or both, if there are
// any.
func (k *Kafka) SecureAddrs() []string {
	var addrs []string
	for _, b := range k.brokers {
		if b.secure != "" {
			addrs = append(addrs, b.secure)
		}
	}
	return addrs
}

// Ready waits until every running broker answers and knows all the others. It ignores
// paused brokers.
func (k *Kafka) Ready(ctx context.Context) error {
	var up []*broker
	for _, b := range k.brokers {
		if b.answers() {
			up = append(up, b)
		}
	}
	for _, b := range up {
		if err := waitForKafka(ctx, b.plain, len(up), b.exited()); err != nil {
			return fmt.Errorf("wait for %s: %w\n%s", b.name, err, b.tail(20))
		}
	}
	return nil
}

// Kill ends a broker with SIGKILL.
func (k *Kafka) Kill(broker int) error { return k.with(broker, (*process).kill) }

// Pause stops a broker with SIGSTOP: its connections stay open, and it does not answer.
func (k *Kafka) Pause(broker int) error { return k.with(broker, (*process).pause) }

// Continue resumes a paused broker.
func (k *Kafka) Continue(broker int) error { return k.with(broker, (*process).proceed) }

// Stop ends a broker with SIGTERM, so that it first moves its partitions to other brokers.
// If ctx ends earlier, Stop kills the broker.
func (k *Kafka) Stop(ctx context.Context, broker int) error {
	return k.with(broker, func(p *process) error { return p.stop(ctx) })
}

// Start starts an ended broker with its data and addresses. It waits until the broker
// answers and the others know it.
func (k *Kafka) Start(ctx context.Context, broker int) error {
	if err := k.with(broker, (*process).start); err != nil {
		return err
	}
	return k.Ready(ctx)
}

// Restart kills a broker, if it runs, and starts it again.
func (k *Kafka) Restart(ctx context.Context, broker int) error {
	if err := k.Kill(broker); err != nil {
		return err
	}
	return k.Start(ctx, broker)
}

func (k *Kafka) with(broker int, do func(*process) error) error {
	switch {
	case k.foreign != nil:
		return errNotOurs
	case broker < 0 || broker >= len(k.brokers):
		return fmt.Errorf("no broker %d, there are %d", broker, len(k.brokers))
	}
	return do(&k.brokers[broker].process)
}

// Logs returns the last lines of every broker's log.
func (k *Kafka) Logs(lines int) string {
	var all strings.Builder
	for _, b := range k.brokers {
		fmt.Fprintf(&all, "%s:\n%s\n", b.name, b.tail(lines))
	}
	return all.String()
}

// Close ends all brokers at once and removes their data. It does nothing to brokers of
// TEST_KAFKA_BROKERS.
func (k *Kafka) Close() error {
	var errs []error
	for _, b := range k.brokers {
		errs = append(errs, b.kill())
	}
	if k.ports != nil {
		errs = append(errs, k.ports.release())
		k.ports = nil
	}
	if k.dir != "" {
		errs = append(errs, os.RemoveAll(k.dir))
	}
	return errors.Join(errs...)
}

// waitForKafka waits until the broker at addr lists at least that many brokers and a
// controller, or until exited is closed.
func waitForKafka(ctx context.Context, addr string, brokers int, exited <-chan struct{}) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestRetries(0),
		kgo.Dialer((&net.Dialer{Timeout: time.Second}).DialContext))
	if err != nil {
		return err
	}
	defer client.Close()
	return await(ctx, exited, func(ctx context.Context) error { return askKafka(ctx, client, brokers) })
}

func askKafka(ctx context.Context, client *kgo.Client, brokers int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{} // no topics
	answer, err := request.RequestWith(ctx, client)
	switch {
	case err != nil:
		return err
	case len(answer.Brokers) < brokers:
		return fmt.Errorf("%d of %d brokers are registered", len(answer.Brokers), brokers)
	case answer.ControllerID < 0:
		return errors.New("there is no controller")
	}
	return nil
}
