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
	"time"

	"github.com/dustin/go-humanize"
)

// decode reads what a variable is set to; an empty text is the zero Value. Its
// errors say what is wrong with the value, give an example, and reveal nothing of a
// secret.
func (v *Variable) decode(text string) (value reflect.Value, err error) {
	if text == "" {
		if v.required {
			err = v.withExample("is required")
		}
		return value, err
	}
	if value, err = v.parse(text); err != nil {
		return reflect.Value{}, v.explain(text, err)
	}
	return value, nil
}

// explain puts the value before what is wrong with it, unless it is a secret.
func (v *Variable) explain(text string, err error) error {
	if v.Secret {
		return v.withExample("the value " + err.Error())
	}
	shown := maskURLs(text)
	if len(shown) > 80 {
		shown = shown[:77] + "..."
	}
	return v.withExample(fmt.Sprintf("%q %s", shown, err))
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

// parse reads a value of the variable's type.
func (v *Variable) parse(text string) (reflect.Value, error) {
	value := reflect.New(v.typ).Elem()
	var err error
	switch kind := v.typ.Kind(); {
	case v.isDuration():
		var d time.Duration
		d, err = ParseDuration(text)
		value.SetInt(int64(d))
	case v.bytes:
		var n int64
		n, err = parseBytes(text)
		value.SetInt(n)
	case kind == reflect.Bool:
		var b bool
		if b, err = strconv.ParseBool(text); err != nil {
			err = errors.New("is neither true nor false")
		}
		value.SetBool(b)
	case value.CanInt():
		var n int64
		n, err = strconv.ParseInt(text, 10, v.typ.Bits())
		value.SetInt(n)
		err = numberError(err)
	case value.CanUint():
		var n uint64
		n, err = strconv.ParseUint(text, 10, v.typ.Bits())
		value.SetUint(n)
		err = numberError(err)
	case value.CanFloat():
		var n float64
		if n, err = strconv.ParseFloat(text, v.typ.Bits()); err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			err = errors.New("is not a number")
		}
		value.SetFloat(n)
	case kind == reflect.Slice:
		var items []string
		items, err = v.parseList(text)
		value.Set(reflect.ValueOf(items))
	default:
		value.SetString(text)
		err = v.checkValue(text)
	}
	return value, err
}

func (v *Variable) parseList(text string) (items []string, err error) {
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		if err := v.checkValue(item); err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if len(items) == 0 {
		return nil, errors.New("is a list without an element")
	}
	return items, nil
}

func (v *Variable) checkValue(text string) error {
	if len(v.Values) == 0 || slices.Contains(v.Values, text) {
		return nil
	}
	return fmt.Errorf("is not one of: %s", strings.Join(v.Values, ", "))
}

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

func parseBytes(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	n, err := humanize.ParseBytes(text)
	switch {
	case err != nil:
		return 0, errors.New("is not a size")
	case n > math.MaxInt64:
		return 0, errors.New("is out of range")
	}
	return int64(n), nil
}

// ParseDuration reads Go's syntax, with days in front: 90s, 7d, 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	rest, negative := strings.CutPrefix(text, "-")
	var total time.Duration
	if head, tail, ok := strings.Cut(rest, "d"); ok {
		days, err := strconv.ParseUint(head, 10, 63)
		if err != nil {
			return 0, errors.New("is not a duration")
		}
		if days > uint64(math.MaxInt64/day) {
			return 0, errors.New("is out of range")
		}
		total, rest = time.Duration(days)*day, tail
	}
	if rest != "" {
		if _, err := strconv.ParseFloat(rest, 64); err == nil && rest != "0" {
			return 0, errors.New("has no unit")
		}
		d, err := time.ParseDuration(rest)
		if err != nil || strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
			return 0, errors.New("is not a duration")
		}
		if d > math.MaxInt64-total {
			return 0, errors.New("is out of range")
		}
		total += d
	} else if total == 0 && !strings.HasSuffix(text, "d") {
		return 0, errors.New("is not a duration")
	}
	if negative {
		total = -total
	}
	return total, nil
}

// userinfo finds the user and password of a URL in any text: everything up to
// the last @, because people forget to escape @ and / in a password.
var userinfo = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)\S*@`)

// maskURLs hides user and password of every URL in text.
func maskURLs(text string) string {
	return userinfo.ReplaceAllString(text, "${1}***@")
}
