package servers

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const log4jProperties = `appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
`

// broker is the process of a broker, with its id and addresses.
type broker struct {
	process
	id         int // from 1, as Kafka requires
	dir        string
	plain      string
	secure     string // empty without TLS and SASL
	controller string
	behind     string // address of the listener behind the proxy
	front      string // address of the proxy; empty without one
}

func (k *Kafka) logConfig() string { return filepath.Join(k.dir, "log4j2.properties") }

// newBroker creates the folder and reserves the ports of a broker.
func (k *Kafka) newBroker(index int) (*broker, error) {
	b := &broker{id: index + 1}
	b.name = fmt.Sprint("broker ", index)
	b.dir = filepath.Join(k.dir, fmt.Sprint("broker-", index))
	b.log = filepath.Join(b.dir, "broker.log")
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return nil, err
	}
	addrs := []*string{&b.plain, &b.controller}
	if k.options.TLS || k.options.SASL {
		addrs = append(addrs, &b.secure)
	}
	if k.options.Proxy != nil {
		addrs = append(addrs, &b.behind)
	}
	for _, addr := range addrs {
		var err error
		if *addr, err = k.ports.take(); err != nil {
			return nil, err
		}
	}
	if k.options.Proxy != nil {
		front, err := k.options.Proxy.Front(localAddr(0), b.behind)
		if err != nil {
			return nil, err
		}
		b.front = front.String()
	}
	b.args = []string{
		k.java, "-Xms256m", "-Xmx768m", "-XX:+UseSerialGC", "-Dlog4j2.configurationFile=" + k.logConfig(),
	}
	if issuer := k.options.Issuer; issuer != nil {
		b.args = append(b.args, "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="+issuer.KeysURL())
	}
	if k.options.archive != "" {
		b.args = append(b.args, "-XX:ArchiveClassesAtExit="+k.options.archive)
	}
	b.args = slices.Concat(b.args, k.javaArgs(), []string{"kafka.Kafka", filepath.Join(b.dir, "server.properties")})
	return b, nil
}

// properties returns the broker's server.properties. They make small clusters start fast,
// and notice a dead broker in 4 s instead of 9. Less than 4 s would fence brokers that only
// wait for a processor.
func (k *Kafka) properties(b *broker) string {
	replicas := min(k.options.Brokers, 3)
	var voters []string
	for _, v := range k.brokers {
		voters = append(voters, fmt.Sprintf("%d@%s", v.id, v.controller))
	}
	p := map[string]any{
		"process.roles":            "broker,controller",
		"node.id":                  b.id,
		"controller.quorum.voters": strings.Join(voters, ","),
		"log.dirs":                 filepath.Join(b.dir, "data"),

		"controller.listener.names":      "CONTROLLER",
		"inter.broker.listener.name":     "PLAIN",
		"listeners":                      "PLAIN://" + b.plain + ",CONTROLLER://" + b.controller,
		"advertised.listeners":           "PLAIN://" + b.plain,
		"listener.security.protocol.map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT",

		"broker.session.timeout.ms":    4000,
		"broker.heartbeat.interval.ms": 1000,

		"auto.create.topics.enable":                        false,
		"group.initial.rebalance.delay.ms":                 0,
		"default.replication.factor":                       replicas,
		"offsets.topic.replication.factor":                 replicas,
		"offsets.topic.num.partitions":                     4,
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.num.partitions":             4,
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.num.partitions":     4,
		"min.insync.replicas":                              (replicas + 1) / 2,
		"transaction.state.log.min.isr":                    (replicas + 1) / 2,
	}
	if b.front != "" {
		addListener(p, "PROXIED", b.behind, b.front, "PLAINTEXT")
	}
	k.secure(p, b)
	if k.options.ACLs {
		p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		p["super.users"] = "User:ANONYMOUS" // the user of the plain listener
	}
	if every := k.options.RetentionCheck; every > 0 {
		p["log.retention.check.interval.ms"] = every.Milliseconds()
		p["log.initial.task.delay.ms"] = every.Milliseconds()
		p["log.segment.delete.delay.ms"] = every.Milliseconds()
	}
	for name, value := range k.options.Properties {
		p[name] = value
	}
	var file strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&file, "%s=%v\n", name, p[name])
	}
	return file.String()
}

// addListener adds a listener whose advertised address differs from its own.
func addListener(p map[string]any, name, at, advertised, protocol string) {
	for property, value := range map[string]string{
		"listeners":                      name + "://" + at,
		"advertised.listeners":           name + "://" + advertised,
		"listener.security.protocol.map": name + ":" + protocol,
	} {
		p[property] = fmt.Sprint(p[property], ",", value)
	}
}

// secure adds the listener with TLS, SASL or both.
func (k *Kafka) secure(p map[string]any, b *broker) {
	protocol := ""
	switch o := k.options; {
	case o.TLS && o.SASL:
		protocol = "SASL_SSL"
	case o.TLS:
		protocol = "SSL"
	case o.SASL:
		protocol = "SASL_PLAINTEXT"
	default:
		return
	}
	addListener(p, "SECURE", b.secure, b.secure, protocol)
	const listener = "listener.name.secure."
	if c := k.Certificates; c != nil {
		p[listener+"ssl.keystore.type"], p[listener+"ssl.keystore.location"] = "PEM", c.serverStore
		p[listener+"ssl.truststore.type"], p[listener+"ssl.truststore.location"] = "PEM", c.CA
	}
	if k.options.ClientCertificates {
		p[listener+"ssl.client.auth"] = "required"
	}
	if k.options.SASL {
		const security = "org.apache.kafka.common.security."
		p[listener+"sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
		p[listener+"plain.sasl.jaas.config"] = fmt.Sprintf("%splain.PlainLoginModule required user_%s=%q;", security,
			KafkaUser, KafkaPassword)
		p[listener+"scram-sha-256.sasl.jaas.config"] = security + "scram.ScramLoginModule required;"
		p[listener+"scram-sha-512.sasl.jaas.config"] = security + "scram.ScramLoginModule required;"
		p[listener+"oauthbearer.sasl.jaas.config"] = security + "oauthbearer.OAuthBearerLoginModule required;"
		if issuer := k.options.Issuer; issuer != nil {
			const bearer = listener + "oauthbearer."
			p[bearer+"sasl.server.callback.handler.class"] = security + "oauthbearer.OAuthBearerValidatorCallbackHandler"
			p[bearer+"sasl.oauthbearer.jwks.endpoint.url"] = issuer.KeysURL()
			p[bearer+"sasl.oauthbearer.expected.audience"] = "kafka"
			p[bearer+"connections.max.reauth.ms"] = time.Hour.Milliseconds() // or until the token expires
		}
	}
}

// newClusterID returns 22 characters of base64. The first is no dash, because StorageTool
// would read an option.
func newClusterID() string {
	raw := make([]byte, 16)
	rand.Read(raw) // never fails
	raw[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(raw)
}
