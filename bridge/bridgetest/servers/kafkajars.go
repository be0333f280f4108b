package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// defaultKafka is the version of Apache Kafka for tests without TEST_KAFKA_VERSION. 4.4.0
// cannot be resolved: Maven Central lacks one of its artifacts.
const defaultKafka = "4.3.1"

// kafkaRelease returns the version of Apache Kafka for tests, and the feature that its
// storage is formatted with; empty is Kafka's default. TEST_KAFKA_VERSION has both: 4.3.1
// or 4.3.1/transaction.version=1.
func kafkaRelease() (version, feature string, err error) {
	set := os.Getenv("TEST_KAFKA_VERSION")
	if set == "" {
		return defaultKafka, "", nil
	}
	if !releaseForm.MatchString(set) {
		return "", "", fmt.Errorf("TEST_KAFKA_VERSION is %q: write 4.3.1 or 4.3.1/transaction.version=1", set)
	}
	version, feature, _ = strings.Cut(set, "/")
	return version, feature, nil
}

// SharedEpochs reports whether all transactions of a producer session have the same epoch:
// the Kafka for tests is below transaction.version 2.
func SharedEpochs() bool {
	version, feature, err := kafkaRelease()
	return err == nil && (strings.HasPrefix(version, "3.") || feature == "transaction.version=0" ||
		feature == "transaction.version=1")
}

var releaseForm = regexp.MustCompile(`^[0-9]+(\.[0-9]+){2}(/[a-z.]+=[0-9]+)?$`)

// The binding is that for slf4j 1.7, which Kafka uses. With the binding for slf4j 2, Kafka
// would not log.
const kafkaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>exportbridge</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>%s</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.25.3</version>
    </dependency>
  </dependencies>
</project>
`

// errInstall ends every error about a missing program.
var errInstall = errors.New("install it with: apt-get install redis-server default-jre-headless maven, " +
	"or name running servers in TEST_KAFKA_BROKERS and TEST_REDIS_URL")

// findProgram returns the path of a program, or an error that says how to install it.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w; %w", err, errInstall)
	}
	return path, nil
}

// KafkaJars returns the folder with Kafka's jars in the user's cache. The first call fills
// it from Maven Central. It may be called concurrently, even by several processes.
func KafkaJars(ctx context.Context) (string, error) {
	version, _, err := kafkaRelease()
	if err != nil {
		return "", err
	}
	return download(ctx, "kafka-"+version, func(dir, to string) ([]string, error) {
		pom := fmt.Sprintf(kafkaPOM, version)
		return []string{"dependency:copy-dependencies", "-DoutputDirectory=" + to, "-DincludeScope=runtime"},
			os.WriteFile(filepath.Join(dir, "pom.xml"), []byte(pom), 0o600)
	})
}

// download returns a folder in the user's cache, and has Maven fill it the first time, with the
// arguments that prepare returns. Maven runs in dir and fills to. Several may call it at once.
func download(ctx context.Context, name string, prepare func(dir, to string) ([]string, error)) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache for %s: %w", name, err)
	}
	home := filepath.Join(cache, "exportbridge", name)
	if err := os.MkdirAll(filepath.Dir(home), 0o700); err != nil {
		return "", fmt.Errorf("make a cache for %s: %w", name, err)
	}
	err = makeOnce(ctx, home, func() error { return fill(ctx, home, prepare) })
	if err != nil && !exists(home) {
		return "", fmt.Errorf("download %s: %w", name, err)
	}
	return home, nil
}

// makeOnce calls do, which makes a path, unless the path exists. Several processes may call it
// at once: one calls do, the others wait.
func makeOnce(ctx context.Context, path string, do func() error) error {
	if exists(path) {
		return nil
	}
	unlock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return fmt.Errorf("wait for another process: %w", err)
	}
	defer unlock()
	if exists(path) { // another process has made it
		return nil
	}
	return do()
}

// fill fills a folder beside home and then renames it, so that an existing home is complete.
func fill(ctx context.Context, home string, prepare func(dir, to string) ([]string, error)) error {
	maven, err := findProgram("mvn")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(home), "download-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	to := filepath.Join(dir, "lib")
	args, err := prepare(dir, to)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, maven, append([]string{"-q", "-B"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mvn: %w\n%s", err, out)
	}
	return os.Rename(to, home)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lockFile waits until this process has the lock of that name.
func lockFile(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := await(ctx, nil, func(context.Context) error { return tryLock(f) }); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}
