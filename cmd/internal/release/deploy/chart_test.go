package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command"
	"exportbridge/cmd/internal/config"
)

var update = flag.Bool("update", false, "write the golden files")

// all are values that turn everything on, with addresses of each kind.
const all = `
image: {repository: registry.example.com/team/exportbridge, tag: v9.9.9, pullPolicy: Always}
imagePullSecrets: [{name: registry}]
replicas: 3
settings:
  KAFKA_BROKERS: "a.example.com:9096, b.example.com:9098,c.example.com,[2001:db8::1]:9192"
  REDIS_URL: rediss://r1.example.com:6380,r2.example.com/0
  OTEL_EXPORTER_OTLP_ENDPOINT: http://collector:4318
  STREAM_USERS_EXPORT_URL: http://api.example.com/export
  EXPORT_MAX_RESPONSE_BYTES: 100000000
secrets:
  EXPORT_API_KEY: {name: other, key: key}
  KAFKA_SASL_PASSWORD: {name: kafka, key: password}
  HTTP_ADMIN_TOKEN: null
podAnnotations: {example.com/owner: team}
serviceAccountAnnotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::123456789012:role/exportbridge"}
nodeSelector: {kubernetes.io/arch: arm64}
tolerations: [{key: dedicated, operator: Exists}]
networkPolicy: {ports: [9443]}
podMonitor: {enabled: true, labels: {release: prometheus}}
rules: {enabled: true, labels: {release: prometheus}}
`

// render renders the chart as helm install does.
func render(t *testing.T, values, name string) (map[string]string, error) {
	t.Helper()
	chart := must.Get(loader.Load(folder + "/helm"))(t)
	given := must.Get(chartutil.ReadValues([]byte(values)))(t)
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: name, Namespace: "default",
		IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// objects renders the chart, and reads what it makes as the API's server does: a field
// that a type does not have, in this very case, is an error.
func objects(t *testing.T, values, name string) map[string]metav1.Object {
	t.Helper()
	files := must.Get(render(t, values, name))(t)
	made := make(map[string]metav1.Object)
	for file, text := range files {
		if filepath.Ext(file) != ".yaml" || strings.TrimSpace(text) == "" {
			continue
		}
		var head metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &head); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, text)
		}
		object, ok := map[string]metav1.Object{
			"ConfigMap": new(corev1.ConfigMap), "NetworkPolicy": new(networkingv1.NetworkPolicy),
			"PodDisruptionBudget": new(policyv1.PodDisruptionBudget),
			"PodMonitor":          new(podMonitor), "PrometheusRule": new(prometheusRule), "Service": new(corev1.Service),
			"ServiceAccount": new(corev1.ServiceAccount),
			"StatefulSet":    new(appsv1.StatefulSet),
		}[head.Kind]
		if !ok {
			t.Fatalf("%s has the kind %q", file, head.Kind)
		}
		read(t, file, text, object)
		made[head.Kind] = object
	}
	return made
}

// podMonitor and prometheusRule are the parts of the operator's types that the tests use. The
// module of the operator would bring many dependencies.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port     string          `json:"port"`
			Interval metav1.Duration `json:"interval"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Groups []struct {
			Name  string           `json:"name"`
			Rules []map[string]any `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

func TestChartLint(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"{}", all} {
		given := must.Get(chartutil.ReadValues([]byte(values)))(t)
		for _, m := range lint.All(folder+"/helm", given, "default", true).Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("%v", m)
			}
		}
	}
}

// TestChartGolden: the output of the chart changes only with these files.
func TestChartGolden(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]string{"default": "{}", "all": all} {
		objects(t, values, "exportbridge")
		files := must.Get(render(t, values, "exportbridge"))(t)
		var got strings.Builder
		for _, file := range slices.Sorted(maps.Keys(files)) {
			text := files[file]
			if strings.HasSuffix(file, "rules.yaml") { // TestChartRules knows the rules
				text, _, _ = strings.Cut(text, "\nspec:\n")
			}
			got.WriteString("---\n# " + file + "\n" + strings.TrimSpace(text) + "\n")
		}
		golden := filepath.Join("testdata", "chart-"+name+".yaml")
		if *update {
			must.Do(t, os.WriteFile(golden, []byte(got.String()), 0o600))
		}
		if diff := cmp.Diff(content(t, golden), got.String()); diff != "" {
			t.Errorf("%s (-golden +got); go test -run TestChartGolden -update:\n%s", name, diff)
		}
	}
}

// TestChartPolicy: the pods can reach the addresses of the settings.
func TestChartPolicy(t *testing.T) {
	t.Parallel()
	for values, want := range map[string][]int32{
		"{}": {443, 6379, 9093},
		all:  {80, 443, 4318, 6379, 6380, 9092, 9096, 9098, 9192, 9443},
		"settings: {KAFKA_BROKERS: 'b:65535', REDIS_URL: unix:///run/redis, KAFKA_CE_SOURCE: 'shop://orders'}": {443, 65535},
	} {
		policy := objects(t, values, "exportbridge")["NetworkPolicy"].(*networkingv1.NetworkPolicy)
		var got []int32
		for _, port := range policy.Spec.Egress[1].Ports {
			got = append(got, port.Port.IntVal)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s\nopens (-want +got):\n%s", values, diff)
		}
	}
}

// TestChartTwice: two installs in one namespace share no name, and select their own pods.
func TestChartTwice(t *testing.T) {
	t.Parallel()
	const long = "a-release-with-a-name-as-long-as-helm-allows-53-chars"
	first, second := objects(t, all, "orders-exportbridge"), objects(t, all, long)
	for kind, a := range first {
		b := second[kind]
		if a.GetName() != "orders-exportbridge" || b.GetName() != strings.TrimSuffix(long[:52], "-") ||
			a.GetLabels()["app.kubernetes.io/instance"] == b.GetLabels()["app.kubernetes.io/instance"] {
			t.Errorf("%s: %s %v and %s %v", kind, a.GetName(), a.GetLabels(), b.GetName(), b.GetLabels())
		}
		for _, label := range []string{"name", "instance", "version", "part-of", "managed-by"} {
			if a.GetLabels()["app.kubernetes.io/"+label] == "" {
				t.Errorf("%s has no label %s", kind, label)
			}
		}
	}
	set := first["StatefulSet"].(*appsv1.StatefulSet)
	want := map[string]string{"app.kubernetes.io/name": "exportbridge",
		"app.kubernetes.io/instance": "orders-exportbridge"}
	for who, got := range map[string]map[string]string{
		"set": set.Spec.Selector.MatchLabels, "service": first["Service"].(*corev1.Service).Spec.Selector,
		"spread":  set.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
		"policy":  first["NetworkPolicy"].(*networkingv1.NetworkPolicy).Spec.PodSelector.MatchLabels,
		"budget":  first["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget).Spec.Selector.MatchLabels,
		"monitor": first["PodMonitor"].(*podMonitor).Spec.Selector.MatchLabels,
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s selects (-want +got):\n%s", who, diff)
		}
	}
}

// TestChartPods: the pods of the chart are those of the kustomization, but for names,
// labels, and where the secrets come from.
func TestChartPods(t *testing.T) {
	t.Parallel()
	want := load[appsv1.StatefulSet](t, "statefulset.yaml").Spec
	got := objects(t, "{}", "exportbridge")["StatefulSet"].(*appsv1.StatefulSet).Spec
	for _, spec := range []*appsv1.StatefulSetSpec{&got, &want} {
		spec.Selector, spec.Template.ObjectMeta = nil, metav1.ObjectMeta{}
		spec.Template.Spec.Volumes, spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector = nil, nil
		main := &spec.Template.Spec.Containers[0]
		main.Image, main.ImagePullPolicy = "", ""
		main.Env = slices.DeleteFunc(main.Env, func(v corev1.EnvVar) bool { return strings.HasSuffix(v.Name, "_FILE") })
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-kustomization +chart):\n%s", diff)
	}
}

// TestChartSecrets: each secret is a file that its variable names.
func TestChartSecrets(t *testing.T) {
	t.Parallel()
	pod := objects(t, all, "exportbridge")["StatefulSet"].(*appsv1.StatefulSet).Spec.Template.Spec
	got := make(map[string]string)
	for _, source := range pod.Volumes[0].Projected.Sources {
		got[source.Secret.Items[0].Path] = source.Secret.Name + "/" + source.Secret.Items[0].Key
	}
	if diff := cmp.Diff(map[string]string{"EXPORT_API_KEY": "other/key", "KAFKA_SASL_PASSWORD": "kafka/password"},
		got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for name := range got {
		want := corev1.EnvVar{Name: name + "_FILE", Value: pod.Containers[0].VolumeMounts[0].MountPath + "/" + name}
		if !slices.ContainsFunc(pod.Containers[0].Env, func(v corev1.EnvVar) bool { return reflect.DeepEqual(v, want) }) {
			t.Errorf("nothing sets %v", want)
		}
	}
}

// TestChartSecretSetting: a secret takes the place of the setting. The program refuses a variable that is
// set both ways, and REDIS_URL with a password is a secret.
func TestChartSecretSetting(t *testing.T) {
	t.Parallel()
	made := objects(t, "secrets: {REDIS_URL: {name: redis, key: url}}", "exportbridge")
	got := slices.Sorted(maps.Keys(made["ConfigMap"].(*corev1.ConfigMap).Data))
	if diff := cmp.Diff([]string{"KAFKA_BROKERS", "KAFKA_CREATE_TOPICS", "KAFKA_TLS_ENABLED"}, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

// TestChartConfig: the files of streams are in a ConfigMap, which BRIDGE_CONFIG names where
// it is mounted as a folder.
func TestChartConfig(t *testing.T) {
	t.Parallel()
	files := map[string]string{"streams.yaml": "streams:\n  events:\n", "tenants.txt": "acme\n"}
	values := must.Get(yaml.Marshal(map[string]any{"config": files}))(t)
	rendered := must.Get(render(t, string(values), "exportbridge"))(t)
	var made corev1.ConfigMap
	read(t, "configfiles.yaml", rendered["exportbridge/templates/configfiles.yaml"], &made)
	if diff := cmp.Diff(files, made.Data); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	pod := objects(t, string(values), "exportbridge")["StatefulSet"].(*appsv1.StatefulSet).Spec.Template.Spec
	mount := pod.Containers[0].VolumeMounts[1]
	if source := pod.Volumes[0].ConfigMap; source == nil || source.Name != made.Name ||
		mount.Name != pod.Volumes[0].Name || mount.SubPath != "" {
		t.Errorf("volume %+v, mount %+v", pod.Volumes[0], mount)
	}
	want := corev1.EnvVar{Name: "BRIDGE_CONFIG", Value: mount.MountPath + "/streams.yaml"}
	if !slices.ContainsFunc(pod.Containers[0].Env, func(v corev1.EnvVar) bool { return reflect.DeepEqual(v, want) }) {
		t.Errorf("nothing sets %v", want)
	}
}

// TestChartRefuses: a wrong value is an error that names it.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"setings: {}":                                                   "setings",
		"settings: {EXPORT_API_KEY: abc}":                               "EXPORT_API_KEY",
		"settings: {STREAM_USERS_EXPORT_API_KEY: abc}":                  "STREAM_USERS_EXPORT_API_KEY",
		"settings: {REDIS_URL: 'redis://user:secret@redis'}":            "REDIS_URL",
		"settings: {HTTP_ADDR: ':9090'}":                                "HTTP_ADDR",
		"settings: {HTTP_PROBE_ADDR: ':9090'}":                          "HTTP_PROBE_ADDR",
		"settings: {HTTP_TLS_KEY: abc}":                                 "HTTP_TLS_KEY",
		"settings: {kafka_brokers: a}":                                  "kafka_brokers",
		"settings: {EXPORT_PROXY: 'socks5://proxy'}":                    "EXPORT_PROXY",
		"secrets: {REDIS_URL: {name: a}}":                               "REDIS_URL",
		"secrets: {EXPORT_API_KEY_FILE: {name: a, key: b}}":             "EXPORT_API_KEY_FILE",
		"networkPolicy: {from: []}":                                     "from",
		"networkPolicy: {ports: [0]}":                                   "ports",
		"config: {tenants.txt: acme}":                                   "streams.yaml",
		"replicas: two":                                                 "replicas",
		"podMonitor: {enabled: true, interval: soon}":                   "interval",
		"image: {repository: ''}":                                       "repository",
		"settings: {KAFKA_BROKERS: 'kafka:9093', EXPORT_URL: [a]}":      "EXPORT_URL",
		"settings: {KAFKA_SASL_PASSWORD: abc, KAFKA_SASL_USERNAME: me}": "KAFKA_SASL_PASSWORD",
		"settings: {REDIS_TLS_KEY: abc}":                                "REDIS_TLS_KEY",
		"settings: {STREAM_A_EXPORT_OAUTH2_PARAMS: a=b}":                "EXPORT_OAUTH2_PARAMS",
		"settings: {STREAM_A_EXPORT_HEADERS: 'Authorization: a'}":       "EXPORT_HEADERS",
		"settings: {KAFKA_SASL_OAUTH_PARAMS: a=b}":                      "KAFKA_SASL_OAUTH_PARAMS",
	} {
		if _, err := render(t, values, "exportbridge"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that names %s", values, err, want)
		}
	}
}

// TestChartSettings: the chart's settings are settings of the program, and what is always
// secret is refused in a ConfigMap.
func TestChartSettings(t *testing.T) {
	t.Parallel()
	var values struct {
		Settings map[string]string
		Secrets  map[string]any
	}
	must.Do(t, yaml.Unmarshal([]byte(content(t, folder, "helm/values.yaml")), &values))
	known := make(map[string]bool)
	for _, v := range config.Variables() {
		known[v.Name] = true
	}
	for name := range values.Settings {
		if !known[name] {
			t.Errorf("%s is no setting", name)
		}
	}
	for name := range values.Secrets {
		if !known[name] {
			t.Errorf("%s is no setting", name)
		}
	}
	var schema struct {
		Properties struct {
			Settings struct {
				PropertyNames struct {
					Pattern string
					Not     struct{ Pattern string }
				}
			}
		}
	}
	must.Do(t, json.Unmarshal([]byte(content(t, folder, "helm/values.schema.json")), &schema))
	names := schema.Properties.Settings.PropertyNames
	accepts, refuses := regexp.MustCompile(names.Pattern), regexp.MustCompile(names.Not.Pattern)
	for name := range known {
		if !accepts.MatchString(name) {
			t.Errorf("the chart refuses the setting %s", name)
		}
	}
	for _, v := range config.Variables() {
		// An address with a password is refused by its value, see TestChartRefuses.
		if v.Secret && v.Name != "REDIS_URL" && v.Name != "EXPORT_PROXY" && !refuses.MatchString(v.Name) {
			t.Errorf("the chart accepts the secret %s in a ConfigMap", v.Name)
		}
	}
}

// TestChartRules: the alert rules are the program's.
func TestChartRules(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	code := command.Program.Run(context.Background(), []string{"alerts"}, nil, cli.Stdio{Stdin: strings.NewReader(""),
		Stdout: &said, Stderr: os.Stderr})
	if got := content(t, folder, "helm/files/alerts.yml"); code != cli.ExitOK || got != said.String() {
		t.Errorf("run make docs (-alerts +chart):\n%s", cmp.Diff(said.String(), got))
	}
	rule := objects(t, all, "exportbridge")["PrometheusRule"].(*prometheusRule)
	if got := len(rule.Spec.Groups); got != strings.Count(said.String(), "\n- name: ") {
		t.Errorf("%d groups of rules", got)
	}
}
