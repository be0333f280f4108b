package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"exportbridge/bridge"
)

// parse returns a value in the form that go-envconfig decodes. An empty text is no
// value. Its errors say what is wrong and give an example. They contain no secret.
func (v *Variable) parse(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	plain, err := v.normalize(text)
	if v.Secret && strings.TrimSpace(text) == "" {
		err = errors.New("has only blanks")
	}
	if err != nil {
		return "", v.explain(text, err)
	}
	return plain, nil
}

// explain puts the value before an error about it, unless the value is a secret.
func (v *Variable) explain(text string, err error) error {
	if v.Secret {
		return v.withExample("the value " + err.Error())
	}
	shown := maskURLs(text)
	if len(shown) > 80 {
		shown = shown[:77] + "..."
	}
	text = fmt.Sprintf("%q %s", shown, err)
	if errors.Is(err, errNotOneOf) { // it lists the values
		return errors.New(text)
	}
	return v.withExample(text)
}

func (v *Variable) withExample(text string) error {
	example := v.example()
	switch {
	case example != "":
		return fmt.Errorf("%s, for example %s", text, example)
	case v.Secret:
		return fmt.Errorf("%s, for example %s%s=/run/secrets/%s", text, v.Name, FileSuffix, strings.ToLower(v.Name))
	}
	return errors.New(text)
}

// normalize turns days, sizes with units and lists with spaces into the forms
// that go-envconfig reads.
func (v *Variable) normalize(text string) (string, error) {
	switch {
	case v.isDuration():
		d, err := bridge.ParseDuration(text)
		return d.String(), err
	case v.bytes:
		return normalizeBytes(text)
	}
	switch v.typ.Kind() {
	case reflect.Bool:
		if _, err := strconv.ParseBool(text); err != nil {
			return "", errors.New("is neither true nor false")
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.typ.Bits())
		return strconv.FormatInt(n, 10), numberError(err)
	case reflect.Slice:
		return v.normalizeList(text)
	case reflect.String:
		return text, v.checkValue(text)
	}
	return text, nil
}

func (v *Variable) normalizeList(text string) (string, error) {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		if err := v.checkValue(item); err != nil {
			return "", err
		}
		items = append(items, item)
	}
	if len(items) == 0 {
		return "", errors.New("is a list without an element")
	}
	return strings.Join(items, ","), nil
}

func (v *Variable) checkValue(text string) error {
	if len(v.Values) == 0 || slices.Contains(v.Values, text) {
		return nil
	}
	return fmt.Errorf("%w: %s", errNotOneOf, strings.Join(v.Values, ", "))
}

var errNotOneOf = errors.New("is not one of")

func numberError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, strconv.ErrRange):
		return errors.New("is out of range")
	default:
		return errors.New("is not a whole number")
	}
}

func normalizeBytes(text string) (string, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return strconv.FormatInt(n, 10), nil
	}
	n, err := humanize.ParseBytes(text)
	if err != nil {
		return "", errors.New("is not a size")
	}
	if n > math.MaxInt64 {
		return "", errors.New("is out of range")
	}
	return strconv.FormatUint(n, 10), nil
}

// userinfo matches the user and password of a URL in any text. It extends to the
// last @, because a password may have @ and / that were not escaped.
var userinfo = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)\S*@`)

// maskURLs hides user and password of every URL in text.
func maskURLs(text string) string {
	return userinfo.ReplaceAllString(text, "${1}***@")
}
