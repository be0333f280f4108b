package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Markdown returns tables of the settings in Markdown, one for each system.
func Markdown(vars []Variable) string {
	var b strings.Builder
	b.WriteString("Durations are written `30s`, `5m`, `7d`, sizes `64MiB` or `10MB`, lists with commas. " +
		"Those marked * can be set\nfor one stream alone: `STREAM_USERS_EXPORT_PAGE_SIZE`.\n")
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

// tableText escapes the characters of a description that would end its cell or begin HTML.
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

// docsMeaning returns the description with notes, the choices and an example.
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

// EnvTemplate returns an environment file of all settings with the defaults of a profile. All
// lines are comments, except for required settings and the profile. The defaults of an unknown
// profile are those of the default profile.
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
		switch {
		case strings.ContainsAny(value, "'\r\n"):
			value = strconv.Quote(value)
		case strings.ContainsAny(value, " #\""):
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
