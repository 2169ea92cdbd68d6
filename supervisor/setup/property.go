package setup

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"saltern/supervisor/settings"
)

// Set sets one answer from text, such as a property of a virtual machine, a parameter on the
// kernel's command line or a variable of the environment. key is the answer's YAML name, with dots
// for nested answers: "network.dns", "settings.log.level". Only the type of the answer decides how
// the text is read:
//
//	text         unchanged, byte for byte
//	truth value  true, yes, on, 1 or false, no, off, 0, in any case
//	number       decimal
//	list         see [SplitWords]
//	SSH keys     see [SplitKeys]
//
// The error names the answer and its possible values. It repeats the text only where that cannot be
// a secret.
func (a *Answers) Set(key, text string) error {
	if err := plainText(text); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}

	path := strings.Split(key, ".")
	if path[0] == "settings" {
		return a.setSetting(key, path[1:], text)
	}

	field, ok := AnswerField(reflect.TypeFor[Answers](), path)
	if !ok {
		return fmt.Errorf("%s is not an answer; applianced config schema lists them", key)
	}

	value, err := readAs(field.Type, key, text)
	if err != nil {
		return err
	}

	if field.Type.Kind() == reflect.Pointer {
		truth := value.(bool)
		value = &truth
	}

	target := reflect.ValueOf(a).Elem().FieldByIndex(field.Index)
	target.Set(reflect.ValueOf(value).Convert(field.Type))
	return nil
}

// setSetting sets a key of appliance.yaml. The type of the key is defined in package settings.
func (a *Answers) setSetting(key string, path []string, text string) error {
	field, ok := AnswerField(reflect.TypeFor[settings.Settings](), path)
	if !ok {
		if len(path) > 2 && path[0] == "master" && path[1] == "options" {
			return fmt.Errorf("%s: options of the master have types of their own and cannot be given as text; "+
				"give them in an answers file, below settings",
				key)
		}
		return fmt.Errorf("%s is not a key of appliance.yaml", key)
	}

	value, err := readAs(field.Type, key, text)
	if err != nil {
		return err
	}

	if a.Settings == nil {
		a.Settings = Tree{}
	}

	group := map[string]any(a.Settings)
	for _, name := range path[:len(path)-1] {
		next, ok := group[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			group[name] = next
		}
		group = next
	}

	group[path[len(path)-1]] = value
	return nil
}

// AnswerField returns the field at a path of YAML names in t, which is the type [Answers] or the
// type of appliance.yaml. The field's Index starts at t. ok reports whether there is such a field.
func AnswerField(t reflect.Type, path []string) (field reflect.StructField, ok bool) {
	var index []int
	for _, name := range path {
		if t.Kind() != reflect.Struct {
			return field, false
		}

		found := false
		for i := range t.NumField() {
			if tag, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); tag == name && tag != "-" {
				field, found = t.Field(i), true
				break
			}
		}

		if !found {
			return field, false
		}

		index = append(index, field.Index...)
		t = field.Type
	}

	field.Index = index
	return field, len(path) > 0
}

// AnswerKeys returns the keys of all answers, as for [Answers.Set]. It omits the keys below
// "settings": only "settings" stands for them.
func AnswerKeys() []string {
	return answerKeys(reflect.TypeFor[Answers](), "")
}

func answerKeys(t reflect.Type, prefix string) (keys []string) {
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if t.Field(i).Type.Kind() == reflect.Struct {
			keys = append(keys, answerKeys(t.Field(i).Type, prefix+tag+".")...)
			continue
		}
		keys = append(keys, prefix+tag)
	}
	return keys
}

// readAs parses text as a value of t, the type of the answer key. It returns a string, a []string,
// a bool, an int or a float64.
func readAs(t reflect.Type, key, text string) (any, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	if t == reflect.TypeFor[time.Duration]() {
		return text, nil // durations are texts in appliance.yaml: "20s"
	}

	switch t.Kind() {
	case reflect.String:
		return text, nil
	case reflect.Slice:
		if key == "admin.ssh_keys" {
			return SplitKeys(text), nil
		}
		return SplitWords(text), nil
	case reflect.Bool:
		truth, err := ParseTruth(text)
		if err != nil {
			return nil, fmt.Errorf("%s %w", key, err)
		}
		return truth, nil
	case reflect.Int:
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%s may hold a number, not %.40q", key, text)
		}
		return n, nil
	case reflect.Float64:
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return nil, fmt.Errorf("%s may hold a number, not %.40q", key, text)
		}
		return n, nil
	}

	return nil, fmt.Errorf("%s holds further answers: give them one by one, or all in an answers file", key)
}

// ParseTruth parses a truth value, see [Answers.Set].
func ParseTruth(text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, fmt.Errorf("may hold true or false, not %.40q", text)
}

// SplitWords splits a list of addresses or names at commas, blanks and line
// ends.
func SplitWords(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// keyStart matches the beginning of an SSH public key: a type and its data.
var keyStart = regexp.MustCompile(`(?:^|[\s,])((?:` + strings.Join(quoted(keyTypes), "|") + `)[ \t]+AAAA)`)

func quoted(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = regexp.QuoteMeta(w)
	}
	return out
}

// SplitKeys splits a list of SSH public keys at line ends. An input field of one line may hold
// several keys, so SplitKeys also splits at a comma or blank if another key follows, i.e. a type
// and AAAA. Other commas belong to a comment ("Doe, Jane") or to options. It omits empty lines and
// comment lines.
func SplitKeys(text string) (keys []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		starts := keyStart.FindAllStringSubmatchIndex(line, -1)
		begin := 0
		for _, start := range starts[min(1, len(starts)):] { // the line's first key begins at starts[0]
			keys = append(keys, strings.TrimRight(line[begin:start[2]], ", \t"))
			begin = start[2]
		}

		keys = append(keys, strings.TrimRight(line[begin:], ", \t"))
	}

	return slices.DeleteFunc(keys, func(k string) bool { return k == "" })
}

// plainText returns an error for text that JSON, YAML or a pipe would change.
func plainText(text string) error {
	switch {
	case strings.Contains(text, "\x00"):
		return errors.New("holds a NUL byte; text may not")
	case !utf8.ValidString(text):
		return errors.New("holds bytes that are not text (UTF-8)")
	}
	return nil
}
