// Package deploy_test holds the files that the program is installed with
// against the types of those who read them.
package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"exportbridge/bridge/bridgetest/must"
)

// folder has the files that the program is installed with.
const folder = "../../../exportbridge/deploy"

// load reads a manifest into the type of its API as the API's server does: a
// field that the type does not have, in this very case, is an error.
func load[T any](t *testing.T, file string) *T {
	t.Helper()
	object := new(T)
	read(t, file, content(t, folder, "kubernetes", file), object)
	return object
}

func read(t *testing.T, file, text string, object any) {
	t.Helper()
	inJSON, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	wrong, err := kjson.UnmarshalStrict(inJSON, object)
	if err := errors.Join(append(wrong, err)...); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func content(t *testing.T, path ...string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(path...)))(t)
	return string(text)
}

// kustomization is what we use of one.
type kustomization struct {
	metav1.TypeMeta    `json:",inline"`
	Resources          []string `json:"resources"`
	ConfigMapGenerator []struct {
		Name string   `json:"name"`
		Envs []string `json:"envs"`
	} `json:"configMapGenerator"`
	Images []struct {
		Name    string `json:"name"`
		NewName string `json:"newName"`
		NewTag  string `json:"newTag"`
	} `json:"images"`
}

// TestKustomizations: every file of a directory is in its kustomization, and
// no other.
func TestKustomizations(t *testing.T) {
	t.Parallel()
	for dir, kind := range map[string]string{".": "Kustomization", "monitoring": "Component"} {
		k := load[kustomization](t, filepath.Join(dir, "kustomization.yaml"))
		if k.Kind != kind {
			t.Errorf("%s: kind %s, want %s", dir, k.Kind, kind)
		}
		named := slices.Concat(k.Resources, []string{"kustomization.yaml"})
		for _, generator := range k.ConfigMapGenerator {
			named = slices.Concat(named, generator.Envs)
		}
		var there []string
		entries := must.Get(os.ReadDir(filepath.Join(folder, "kubernetes", dir)))(t)
		for _, entry := range entries {
			if !entry.IsDir() {
				there = append(there, entry.Name())
			}
		}
		if diff := cmp.Diff(there, slices.Sorted(slices.Values(named))); diff != "" {
			t.Errorf("%s: files (-there +named):\n%s", dir, diff)
		}
	}
}

// TestKustomize lets kustomize put the manifests together, alone and with the
// component for the Prometheus operator.
func TestKustomize(t *testing.T) {
	t.Parallel()
	kustomize, err := exec.LookPath("kustomize")
	if err != nil {
		t.Skip("kustomize is not installed")
	}
	dir := filepath.Join(t.TempDir(), "kubernetes")
	must.Do(t, os.CopyFS(dir, os.DirFS(filepath.Join(folder, "kubernetes"))))
	for _, c := range []struct {
		more  string
		kinds int
	}{{"", 6}, {"\ncomponents: [monitoring]\n", 8}} {
		file := must.Get(os.OpenFile(filepath.Join(dir, "kustomization.yaml"), os.O_APPEND|os.O_WRONLY, 0))(t)
		must.Get(file.WriteString(c.more))(t)
		file.Close()
		built, err := exec.Command(kustomize, "build", dir).Output()
		if err != nil {
			t.Fatalf("kustomize: %v", err)
		}
		if got := strings.Count("\n"+string(built), "\nkind: "); got != c.kinds {
			t.Errorf("with %q: %d objects, want %d\n%s", c.more, got, c.kinds, built)
		}
		if !strings.Contains(string(built), "image: registry.example.com/exportbridge:v1.0.0") {
			t.Error("the image is not the one of the kustomization")
		}
	}
}

// TestStatefulSet: two pods with names that stay, of which one may be away.
func TestStatefulSet(t *testing.T) {
	t.Parallel()
	set := load[appsv1.StatefulSet](t, "statefulset.yaml")
	pod := set.Spec.Template.Spec
	if got := *set.Spec.Replicas; got != 2 {
		t.Errorf("%d replicas, want one that runs and one that stands by", got)
	}
	if *pod.EnableServiceLinks || *pod.AutomountServiceAccountToken {
		t.Error("the pods get variables of services, or a token")
	}
	if got := *pod.TerminationGracePeriodSeconds; got <= 28 {
		t.Errorf("killed after %d s; a stop may take BRIDGE_SHUTDOWN_TIMEOUT and 3 s", got)
	}
	main := pod.Containers[0]
	instance := slices.IndexFunc(main.Env, func(v corev1.EnvVar) bool { return v.Name == "BRIDGE_INSTANCE_ID" })
	if instance < 0 || main.Env[instance].ValueFrom.FieldRef.FieldPath != "metadata.name" {
		t.Error("BRIDGE_INSTANCE_ID is not the pod's name")
	}
	for name, probe := range map[string]*corev1.Probe{"/livez": main.LivenessProbe, "/readyz": main.ReadinessProbe} {
		if probe.HTTPGet.Path != name || probe.HTTPGet.Port != intstr.FromString("probes") {
			t.Errorf("probe %v, want %s of port probes", probe.HTTPGet, name)
		}
	}
	if main.StartupProbe.HTTPGet.Path != "/livez" {
		t.Errorf("the start is probed at %s", main.StartupProbe.HTTPGet.Path)
	}
	if main.Resources.Limits.Memory().IsZero() || !main.Resources.Limits.Cpu().IsZero() {
		t.Errorf("limits %v, want one of memory and none of CPU", main.Resources.Limits)
	}
	budget := load[policyv1.PodDisruptionBudget](t, "poddisruptionbudget.yaml")
	if budget.Spec.MinAvailable != nil || *budget.Spec.MaxUnavailable != intstr.FromInt32(1) {
		t.Errorf("disruption budget %v, want at most one away", budget.Spec)
	}
}

// TestRestricted: the pods satisfy the restricted standard of pod security, and
// cannot write anywhere.
func TestRestricted(t *testing.T) {
	t.Parallel()
	pod := load[appsv1.StatefulSet](t, "statefulset.yaml").Spec.Template.Spec
	if s := pod.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser != 65532 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("pod: %v", s)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := c.SecurityContext
		if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.Capabilities.Add != nil {
			t.Errorf("container %s: %v", c.Name, s)
		}
		for _, v := range c.Env {
			if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
				t.Errorf("%s is a secret in the environment, want a file", v.Name)
			}
		}
		for _, m := range c.VolumeMounts {
			if !m.ReadOnly {
				t.Errorf("%s is mounted for writing", m.MountPath)
			}
		}
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			t.Errorf("volume %s is of the host", v.Name)
		}
	}
}

// TestSelectors: all of them select the pods, and the ports are the container's.
func TestSelectors(t *testing.T) {
	t.Parallel()
	set := load[appsv1.StatefulSet](t, "statefulset.yaml")
	service := load[corev1.Service](t, "service.yaml")
	policy := load[networkingv1.NetworkPolicy](t, "networkpolicy.yaml")
	account := load[corev1.ServiceAccount](t, "serviceaccount.yaml")
	want := set.Spec.Template.Labels
	for who, got := range map[string]map[string]string{
		"statefulset": set.Spec.Selector.MatchLabels, "service": service.Spec.Selector, "network policy": policy.Spec.PodSelector.MatchLabels,
		"budget":  load[policyv1.PodDisruptionBudget](t, "poddisruptionbudget.yaml").Spec.Selector.MatchLabels,
		"spread":  set.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
		"monitor": load[serviceMonitor](t, "monitoring/servicemonitor.yaml").Spec.Selector.MatchLabels,
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s selects (-want +got):\n%s", who, diff)
		}
	}
	if set.Spec.ServiceName != service.Name || set.Spec.Template.Spec.ServiceAccountName != account.Name {
		t.Errorf("the pods are of service %s and account %s", set.Spec.ServiceName, set.Spec.Template.Spec.ServiceAccountName)
	}
	for i, port := range set.Spec.Template.Spec.Containers[0].Ports {
		if service.Spec.Ports[i].TargetPort != intstr.FromString(port.Name) || *policy.Spec.Ingress[0].Ports[i].Port != intstr.FromString(port.Name) {
			t.Errorf("the container's port is %s", port.Name)
		}
	}
	if load[serviceMonitor](t, "monitoring/servicemonitor.yaml").Spec.Endpoints[0].Port != service.Spec.Ports[1].Name {
		t.Error("the monitor reads another port than the service's for probes")
	}
	if len(policy.Spec.PolicyTypes) != 2 {
		t.Errorf("the policy is about %v, want both ways", policy.Spec.PolicyTypes)
	}
}

// TestSecretsAreFiles: what ends in _FILE is a key of the secret that the
// kustomization says how to make.
func TestSecretsAreFiles(t *testing.T) {
	t.Parallel()
	text := content(t, folder, "kubernetes/kustomization.yaml")
	pod := load[appsv1.StatefulSet](t, "statefulset.yaml").Spec.Template.Spec
	mount := pod.Containers[0].VolumeMounts[0]
	if pod.Volumes[0].Name != mount.Name || !strings.Contains(text, "create secret generic "+pod.Volumes[0].Secret.SecretName+" ") {
		t.Errorf("the secret %s is not the one that is made", pod.Volumes[0].Secret.SecretName)
	}
	files := 0
	for _, v := range pod.Containers[0].Env {
		if !strings.HasSuffix(v.Name, "_FILE") {
			continue
		}
		files++
		if key, ok := strings.CutPrefix(v.Value, mount.MountPath+"/"); !ok || !strings.Contains(text, "--from-file="+key) {
			t.Errorf("%s=%s is not in the secret", v.Name, v.Value)
		}
	}
	if files == 0 {
		t.Error("there is no secret")
	}
}

// serviceMonitor is what we use of one. The module with its whole type would
// bring the operator's dependencies.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string          `json:"port"`
			Interval metav1.Duration `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}
