package conf

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"saltern/master/value"
)

// fillFields sets the fields of m from the options. It calls bad for each option whose value does
// not fit its field.
func fillFields(m *Master, opts *value.Map, bad func(option string, err error)) {
	groups := reflect.ValueOf(m).Elem()
	for i := range groups.NumField() {
		if !groups.Type().Field(i).Anonymous {
			continue
		}

		fillGroup(groups.Field(i), "", opts, bad)
	}
}

// fillGroup sets the fields of one group. The names of the group's options begin with prefix. A
// field that is itself a group, such as [GitRemotes], has the prefix of that group's options as its
// tag.
func fillGroup(group reflect.Value, prefix string, opts *value.Map, bad func(option string, err error)) {
	for j := range group.NumField() {
		name, unit, _ := strings.Cut(group.Type().Field(j).Tag.Get("conf"), ",")
		if name == "" {
			continue
		}

		name = prefix + name
		if group.Type().Field(j).Type == reflect.TypeFor[GitRemotes]() {
			fillGroup(group.Field(j), name, opts, bad)
			continue
		}

		v, ok := opts.Get(name)
		if !ok || v == nil {
			continue
		}

		if err := setField(group.Field(j), v, unit); err != nil {
			bad(name, err)
		}
	}
}

func setField(f reflect.Value, v any, unit string) error {
	misfit := func(want string) error { return fmt.Errorf("expected %s, found %s", want, typeName(v)) }
	switch p := f.Addr().Interface().(type) {
	case *time.Duration:
		d, ok := seconds(v, unit)
		if !ok {
			return misfit("a number of seconds")
		}
		*p = d
		return nil
	case *ReactorRules:
		p.Rules, _ = v.([]any)
		p.File, _ = v.(string)
		return nil // no row of the options' table has another type
	case *[]netip.Prefix:
		l, err := prefixes(v)
		*p = l
		return err
	case **value.Map:
		c, err := coerce(v, []string{"dict"})
		if err == nil {
			*p = c.(*value.Map)
		}
		return err
	case *[]any:
		l, ok := v.([]any)
		if !ok {
			return misfit("a list")
		}
		*p = l
		return nil
	case *[]string:
		l, err := textList(v)
		*p = l
		return err
	case *map[string][]string:
		r, err := rootsByEnv(v)
		*p = r
		return err
	case *any:
		*p = v
		return nil
	}

	return setScalar(f, v)
}

// setScalar sets a field that holds one value.
func setScalar(f reflect.Value, v any) error {
	misfit := func(want string) error { return fmt.Errorf("expected %s, found %s", want, typeName(v)) }
	switch p := f.Addr().Interface().(type) {
	case *bool:
		b, ok := v.(bool)
		if !ok {
			return misfit("true or false")
		}
		*p = b
		return nil
	case *string:
		c, err := coerce(v, []string{"str"})
		if err == nil {
			*p = c.(string)
		}
		return err
	case *int:
		c, err := coerce(v, []string{"int"})
		if err != nil {
			return err
		}

		n, ok := c.(int64)
		if !ok || n > math.MaxInt || n < math.MinInt {
			return misfit("a number that fits into 64 bits")
		}

		*p = int(n)
		return nil
	}

	return fmt.Errorf("field of type %s", f.Type())
}

// seconds parses a duration: a number of seconds, or of minutes if the unit is "m". It returns
// false if v is not a number or is too large.
func seconds(v any, unit string) (time.Duration, bool) {
	var f float64
	switch v := v.(type) {
	case int64:
		f = float64(v)
	case float64:
		f = v
	default:
		return 0, false
	}

	if unit == "m" {
		f *= 60
	}

	f *= float64(time.Second)
	if math.IsNaN(f) || math.Abs(f) >= math.MaxInt64 {
		return 0, false
	}

	return time.Duration(f), true
}

// textList reads a list of texts, or one text.
func textList(v any) ([]string, error) {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil, nil
		}
		return []string{v}, nil
	case []any:
		out := make([]string, 0, len(v))
		for i, x := range v {
			c, err := coerce(x, []string{"str"})
			if err != nil {
				return nil, fmt.Errorf("item %d: %w", i+1, err)
			}
			out = append(out, c.(string))
		}

		return out, nil
	}

	return nil, fmt.Errorf("expected a list of texts, found %s", typeName(v))
}

// rootsByEnv reads a map from environments to directories that normalizeRoots has converted.
func rootsByEnv(v any) (map[string][]string, error) {
	m, ok := v.(*value.Map)
	if !ok {
		return nil, fmt.Errorf("expected environments with lists of directories, found %s", typeName(v))
	}
	out := make(map[string][]string, m.Len())
	for k, x := range m.All() {
		l, err := textList(x)
		if err != nil {
			return nil, fmt.Errorf("environment %v: %w", k, err)
		}
		out[fmt.Sprint(k)] = l
	}
	return out, nil
}

func prefixes(v any) ([]netip.Prefix, error) {
	l, err := textList(v)
	if err != nil {
		return nil, err
	}

	var out []netip.Prefix
	for _, s := range l {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, aerr := netip.ParseAddr(s)
			if aerr != nil {
				return nil, fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/24", s)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}

		out = append(out, p.Masked())
	}

	return out, nil
}
