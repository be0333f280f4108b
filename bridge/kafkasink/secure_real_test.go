package kafkasink_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaadmin"
	"exportbridge/bridge/kafkastream"
)

// TestSecureKafka publishes to an Apache Kafka that wants TLS, a certificate, a
// login, and rights: none but those that our own ACL commands grant.
func TestSecureKafka(t *testing.T) {
	t.Parallel()
	servers.NeedReal(t)
	k := servers.StartKafka(t, servers.KafkaOptions{TLS: true, SASL: true, ClientCertificates: true, ACLs: true})
	read := func(file string) string {
		text := must.Get(os.ReadFile(file))(t)
		return string(text)
	}
	certs := k.Certificates
	strange, strangeKey := newAuthority(t).issue("bridge", nil)
	secure := func(c *kafkastream.Config) {
		c.Mode = bridge.ExactlyOnce
		c.TLSEnabled, c.TLSCA = true, read(certs.CA)
		c.TLSCert, c.TLSKey = read(certs.ClientCert), bridge.Secret(read(certs.ClientKey))
		c.SASLMechanism, c.SASLUsername, c.SASLPassword = "SCRAM-SHA-512", servers.KafkaUser, servers.KafkaPassword
	}
	for name, c := range map[string]struct {
		wrong  func(*kafkastream.Config)
		reason bridge.Reason
		hint   string
	}{
		"unknown authority": {func(c *kafkastream.Config) { c.TLSCA = newAuthority(t).pem }, bridge.ReasonConfig,
			"KAFKA_TLS_CA"},
		"no certificate": {func(c *kafkastream.Config) { c.TLSCert, c.TLSKey = "", "" }, bridge.ReasonConfig,
			"KAFKA_TLS_CERT"},
		"strange certificate": {func(c *kafkastream.Config) { c.TLSCert, c.TLSKey = strange, bridge.Secret(strangeKey) },
			bridge.ReasonConfig, "KAFKA_TLS_CERT"},
		"wrong password": {func(c *kafkastream.Config) { c.SASLPassword = "hunter2" }, bridge.ReasonAuth,
			"KAFKA_SASL_PASSWORD"},
		"unknown user": {func(c *kafkastream.Config) { c.SASLUsername = "mallory" }, bridge.ReasonAuth,
			"KAFKA_SASL_USERNAME"},
		"no rights": {func(*kafkastream.Config) {}, bridge.ReasonAuth, "kafka-acls.sh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, config(t, k.SecureAddrs(), secure, c.wrong))
			f := kafkatest.AsFault(t, tryRecover(t, s), bridge.Permanent, c.reason)
			if !strings.Contains(f.Hint, c.hint) || strings.Contains(f.Error()+f.Hint, "hunter2") {
				t.Errorf("fault %v, hint %q: want %s", f, f.Hint, c.hint)
			}
		})
	}
	t.Run("granted", func(t *testing.T) {
		t.Parallel()
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"} {
			cfg := config(t, k.SecureAddrs(), secure, func(c *kafkastream.Config) { c.SASLMechanism = mechanism })
			s := open(t, cfg)
			grant(t, k.Addrs(), append(cfg.Needs().ACLs(), cfg.Needs().JobACLs()...))
			must.Be(t, tryRecover(t, s), bridge.ErrNoCheckpoint)
			publish(t, s, page(event("e", "u")))
			for _, found := range cfg.Needs().Check(t.Context()) {
				if found.Level == kafkaadmin.LevelFail {
					t.Errorf("%s: check found %+v", mechanism, found)
				}
			}
		}
	})
}

var aclWords = regexp.MustCompile(`--(operation|topic|group|transactional-id|resource-pattern-type|allow-principal)` +
	` '?([^' ]+)'?|--(cluster)`)

// grant does what the commands say, as the cluster's administrator would, and waits until
// the broker knows the rights: it answers as soon as they are stored.
func grant(t *testing.T, brokers []string, commands []string) {
	t.Helper()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(brokers...)))(t)
	defer client.Close()
	admin := kadm.NewClient(client)
	for _, command := range commands {
		acl := kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral)
		var operations []kadm.ACLOperation
		names := make(map[string][]string) // by the kind of resource: a setter of acl replaces all
		for _, m := range aclWords.FindAllStringSubmatch(command, -1) {
			switch m[1] + m[3] {
			case "operation":
				operation, err := kmsg.ParseACLOperation(m[2])
				if err != nil {
					t.Fatalf("%s: %v", command, err)
				}
				operations = append(operations, operation)
			case "topic", "group", "transactional-id":
				names[m[1]] = append(names[m[1]], m[2])
			case "cluster":
				acl.Clusters()
			case "resource-pattern-type":
				acl.ResourcePatternType(kadm.ACLPatternPrefixed)
			case "allow-principal":
				acl.Allow(m[2]).AllowHosts()
			}
		}
		acl.MaybeTopics(names["topic"]...).MaybeGroups(names["group"]...).
			MaybeTransactionalIDs(names["transactional-id"]...).Operations(operations...)
		results, err := admin.CreateACLs(t.Context(), acl)
		if err != nil || len(results) == 0 {
			t.Fatalf("%s: %d results, %v", command, len(results), err)
		}
		for _, r := range results {
			if r.Err != nil {
				t.Fatalf("%s: %v", command, r.Err)
			}
		}
		kafkatest.Eventually(t, "know the rights of "+command, func() (bool, error) {
			known, err := admin.DescribeACLs(t.Context(), acl)
			return !slices.ContainsFunc(known, func(r kadm.DescribeACLsResult) bool { return len(r.Described) == 0 }), err
		})
	}
}
