package config

import (
	"cmp"
	"fmt"
	"strings"
)

// Markdown is the Markdown of all settings, a table for each system.
func Markdown(vars []Variable) string {
	var b strings.Builder
	b.WriteString("Durations are written `30s`, `5m`, `7d`, sizes `64MiB` or `10MB`, lists with commas. Those marked * can be set\n" +
		"for one stream alone: `STREAM_USERS_EXPORT_PAGE_SIZE`.\n")
	group := ""
	for _, v := range vars {
		if v.group() != group {
			group = v.group()
			fmt.Fprintf(&b, "\n| `%s_*` | Default | Meaning |\n| --- | --- | --- |\n", group)
		}
		star := ""
		if v.stream {
			star = " *"
		}
		fmt.Fprintf(&b, "| `%s`%s | %s | %s |\n", v.Name, star, v.docsDefault(), tableText.Replace(v.docsMeaning()))
	}
	return b.String()
}

// tableText keeps a description from ending its cell or being taken for HTML.
var tableText = strings.NewReplacer("|", `\|`, "<", `\<`)

func (v *Variable) docsDefault() string {
	switch {
	case v.required:
		return "required"
	case v.def == "":
		return ""
	}
	return "`" + v.def + "`"
}

// docsMeaning is the description with what else there is to know.
func (v *Variable) docsMeaning() string {
	notes := []string{v.Description}
	if v.Secret {
		notes = append(notes, "secret, has no flag")
	}
	if len(v.Values) > 0 {
		notes = append(notes, "one of `"+strings.Join(v.Values, "`, `")+"`")
	}
	if v.sample != "" {
		notes = append(notes, "for example `"+v.sample+"`")
	}
	return strings.Join(notes, "; ")
}

// EnvTemplate is an environment file that sets nothing as it is, except to show what is
// required, and the profile, whose defaults it has. An unknown profile is the default one.
func EnvTemplate(vars []Variable, named string) string {
	p, err := sources{files: newValueFiles()}.profile(named)
	var b strings.Builder
	b.WriteString("# Settings of exportbridge. Take the # off a line to set it.\n" +
		"# X_FILE=path in place of X=value reads the value from a file.\n")
	for _, v := range vars {
		fmt.Fprintf(&b, "\n# %s\n", v.docsMeaning())
		if p.examples[v.Name] != "" {
			b.WriteString("# To be set for this profile:\n")
		}
		value := cmp.Or(p.values[v.Name], p.examples[v.Name], v.def, v.sample)
		chosen := v.Name == profileVariable && err == nil
		if chosen {
			value = named
		}
		if strings.ContainsAny(value, " #\"'") {
			value = "'" + value + "'"
		}
		hash := "#"
		if v.required || chosen {
			hash = ""
		}
		fmt.Fprintf(&b, "%s%s=%s\n", hash, v.Name, value)
	}
	return b.String()
}
