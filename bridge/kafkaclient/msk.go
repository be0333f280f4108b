package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"
	"github.com/twmb/franz-go/pkg/sasl"
	mskiam "github.com/twmb/franz-go/pkg/sasl/aws"

	"exportbridge/bridge"
)

// credentialsLead is how long before their expiry credentials are fetched again.
const credentialsLead = 5 * time.Minute

// awsCredentials are those of the process: all clients share them.
type awsCredentials struct {
	mu       sync.Mutex // guards all below
	provider aws.CredentialsProvider
	from     string    // of the last credentials
	loaded   time.Time // when provider was made
}

var msk awsCredentials

// current returns credentials that have not ended. They come from the first of AWS's default
// chain: environment, web identity, profile, container, instance.
func (a *awsCredentials) current(ctx context.Context) (aws.Credentials, error) {
	provider, err := a.load(ctx)
	if err != nil {
		return aws.Credentials{}, err
	}
	found, err := provider.Retrieve(ctx)
	if err == nil {
		a.mu.Lock()
		a.from = found.Source
		a.mu.Unlock()
	}
	return found, err
}

func (a *awsCredentials) load(ctx context.Context) (aws.CredentialsProvider, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.provider != nil {
		return a.provider, nil
	}
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.DisableKeepAlives = true // credentials last longer than an idle connection
	})
	conf, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(client), config.WithLogger(logging.Nop{}),
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = credentialsLead }))
	if err != nil {
		return nil, err
	}
	if conf.Credentials == nil {
		return nil, errors.New("no source of credentials")
	}
	a.provider, a.loaded = conf.Credentials, time.Now()
	return a.provider, nil
}

// refused makes the next login read files and ask for credentials again, once a minute.
func (a *awsCredentials) refused() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.loaded) >= betweenReloads {
		a.provider = nil
	}
}

// source names where the last credentials came from, in AWS's words.
func (a *awsCredentials) source() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.from == "" {
		return "AWS"
	}
	return a.from
}

// mskLogin is AWS_MSK_IAM: a signed request for kafka-cluster:Connect to the broker's host.
type mskLogin struct{}

func (mskLogin) Name() string { return saslMSK }

// Authenticate implements sasl.Mechanism.
func (mskLogin) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	bounded, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	found, err := msk.current(bounded)
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if err != nil {
		return nil, nil, &loginError{class: bridge.Transient, code: "credentials",
			hint: "give this process AWS credentials: a role of its pod, task or instance, AWS_PROFILE, or " +
				"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; a role of a pod requires AWS_REGION",
			err: fmt.Errorf("get AWS credentials: %s", printable(err.Error()))}
	}
	session, first, err := mskiam.Auth{
		AccessKey: found.AccessKeyID, SecretKey: found.SecretAccessKey, SessionToken: found.SessionToken,
		UserAgent: "exportbridge",
	}.AsManagedStreamingIAMMechanism().Authenticate(ctx, host)
	if err != nil {
		return nil, nil, &loginError{class: bridge.Permanent, code: "region", err: err,
			hint: "set AWS_REGION to the region of the Kafka cluster: the broker's name does not have it"}
	}
	return session, first, nil
}

// mskActions are the actions of IAM policies for the operations of ACLs, by resource. Read of
// a topic allows Describe, too, as in an ACL:
// docs.aws.amazon.com/msk/latest/developerguide/kafka-actions.html.
var mskActions = map[string]string{
	"topic Write": "WriteData", "topic Read": "ReadData DescribeTopic", "topic Describe": "DescribeTopic",
	"topic Create": "CreateTopic", "topic DescribeConfigs": "DescribeTopicDynamicConfiguration",
	"group Read": "AlterGroup", "group Describe": "DescribeGroup",
	"transactional-id Write": "AlterTransactionalId", "transactional-id Describe": "DescribeTransactionalId",
	"cluster IdempotentWrite": "Connect WriteDataIdempotently",
}

// statement returns the statement of an IAM policy for a right in the words of kafka-acls.sh. A
// right has operations, then resources of one kind.
func statement(right string) string {
	var operations, actions, resources []string
	kind, prefixed := "cluster", ""
	resource := func(name string) {
		resources = append(resources, fmt.Sprintf("%q", "arn:aws:kafka:<region>:<account>:"+kind+"/<cluster>/*"+name+prefixed))
	}
	for words := strings.Fields(right); len(words) > 1; words = words[2:] {
		switch words[0] {
		case "--operation":
			operations = append(operations, words[1])
		case "--resource-pattern-type":
			prefixed = "*"
		default:
			kind = strings.TrimPrefix(words[0], "--")
			resource("/" + words[1])
		}
	}
	if resources == nil { // the cluster has no name
		resource("")
	}
	for _, operation := range operations {
		for action := range strings.FieldsSeq(mskActions[kind+" "+operation]) {
			if action = fmt.Sprintf("%q", "kafka-cluster:"+action); !slices.Contains(actions, action) {
				actions = append(actions, action)
			}
		}
	}
	return fmt.Sprintf(`{"Effect":"Allow","Action":[%s],"Resource":[%s]}`, strings.Join(actions, ","), strings.Join(resources, ","))
}
