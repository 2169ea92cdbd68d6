package saved

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"saltern/master/internal/acl"
	"saltern/master/value"
)

// FieldKind is the kind of values of a field.
type FieldKind string

// The kinds of fields.
const (
	TextField   FieldKind = "text"
	NumberField FieldKind = "number"
	ChoiceField FieldKind = "choice"
	BoolField   FieldKind = "bool"
)

// Field is a value that whoever runs a job fills in. A string argument of the job that is the name
// of the field in braces becomes the value. A value is never put into a longer text.
type Field struct {
	Name        string
	Kind        FieldKind
	Description string
	Default     any      // nil: the field must be filled in
	Choices     []string // of a choice
	Pattern     string   // regular expression that a whole text, or number, must match; "": any

	pattern *regexp.Regexp // nil: any
}

const (
	maxText    = 8 << 10 // bytes of a value
	maxPattern = 1000    // bytes
	maxChoices = 200
)

var (
	fieldName  = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)
	numberForm = regexp.MustCompile(`^-?[0-9]{1,15}(\.[0-9]{1,15})?$`)
)

// reserved are the arguments of saved.run itself.
var reserved = []string{"name", "test", "fields", "revision"}

func readFields(f *form) []Field {
	var out []Field
	for _, v := range f.list("fields", maxFields) {
		m, ok := v.(*value.Map)
		if !ok {
			f.fail("fields is a list of maps: [{name: version, kind: text}]")
			return nil
		}
		field, err := readField(m)
		if err == nil && slices.ContainsFunc(out, func(o Field) bool { return o.Name == field.Name }) {
			err = badf("there are two fields %s", field.Name)
		}
		if err != nil {
			if f.err == nil {
				f.err = err
			}
			return nil
		}
		out = append(out, field)
	}
	return out
}

func readField(m *value.Map) (Field, error) {
	f := newForm(m)
	field := Field{
		Name:        f.text("name", 40),
		Kind:        FieldKind(f.text("kind", 20)),
		Description: f.description(),
		Default:     f.get("default"),
		Pattern:     f.text("pattern", maxPattern),
	}
	for _, c := range f.list("choices", maxChoices) {
		text, ok := c.(string)
		if !ok || len(text) > maxText {
			f.fail("the choices of a field are texts: quote them")
		}
		field.Choices = append(field.Choices, text)
	}
	if field.Kind == "" {
		field.Kind = TextField
	}
	if err := f.end(); err != nil {
		return field, err
	}
	return field, field.check()
}

// check checks the field itself, and compiles its pattern.
func (f *Field) check() error {
	switch {
	case !fieldName.MatchString(f.Name):
		return badf("%.40q is no name of a field: it has small letters, digits and '_', and begins with a letter", f.Name)
	case slices.Contains(reserved, f.Name):
		return badf("a field cannot have the name %s: saved.run has an argument of that name", f.Name)
	case !slices.Contains([]FieldKind{TextField, NumberField, ChoiceField, BoolField}, f.Kind):
		return badf("field %s: the kind is text, number, choice or bool, not %.40q", f.Name, f.Kind)
	case (f.Kind == ChoiceField) != (len(f.Choices) > 0):
		return badf("field %s: a choice has choices, and no other kind has", f.Name)
	case f.Pattern != "" && f.Kind != TextField && f.Kind != NumberField:
		return badf("field %s: only texts and numbers have a pattern", f.Name)
	}
	if f.Pattern != "" {
		var err error
		if _, err = syntax.Parse(f.Pattern, syntax.Perl); err == nil {
			f.pattern, err = regexp.Compile(`\A(?:` + f.Pattern + `)\z`)
		}
		if err != nil {
			return badf("field %s: the pattern is no regular expression: %v", f.Name, err)
		}
	}
	if f.Default != nil {
		if _, err := f.read(f.Default); err != nil {
			return badf("the default of a field does not fit: %v", err)
		}
	}
	return nil
}

// read returns the value that somebody has filled in, as the function gets it. The value may be a
// secret, so no error has it.
func (f *Field) read(given any) (any, error) {
	text, isText := given.(string)
	if isText && (len(text) > maxText || !utf8.ValidString(text) || strings.ContainsRune(text, 0)) {
		return nil, badf("field %s: the value is no text of at most %d bytes", f.Name, maxText)
	}

	switch f.Kind {
	case TextField:
		if !isText {
			return nil, badf("field %s is text, and the value is not: quote it twice on a command line: %s='\"…\"'", f.Name, f.Name)
		}
		if f.pattern != nil && !f.pattern.MatchString(text) {
			return nil, badf("field %s: the value does not fit the pattern %s", f.Name, f.Pattern)
		}
		return text, nil
	case NumberField:
		return f.readNumber(given)
	case ChoiceField:
		if !isText || !slices.Contains(f.Choices, text) {
			return nil, badf("field %s is one of: %s", f.Name, strings.Join(f.Choices, ", "))
		}
		return text, nil
	case BoolField:
		if b, ok := given.(bool); ok {
			return b, nil
		}
		switch strings.ToLower(text) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, badf("field %s is True or False", f.Name)
	}
	return nil, badf("field %s has the unknown kind %q", f.Name, f.Kind)
}

func (f *Field) readNumber(given any) (any, error) {
	text, ok := given.(string)
	switch n := given.(type) {
	case int64:
		text, ok = strconv.FormatInt(n, 10), true
	case float64:
		text, ok = strconv.FormatFloat(n, 'f', -1, 64), true
	}
	if !ok || !numberForm.MatchString(text) {
		return nil, badf("field %s is a number of at most 15 digits", f.Name)
	}
	if f.pattern != nil && !f.pattern.MatchString(text) {
		return nil, badf("field %s: the value does not fit the pattern %s", f.Name, f.Pattern)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, badf("field %s is a number", f.Name)
	}
	return n, nil
}

// Fill returns the arguments of the job with the given values of its fields. A value takes the place
// of one string: it cannot become a further argument, a named one, or a list. A value at the top of
// the positional arguments that minions would read as a named argument is refused.
func (j *Job) Fill(given *value.Map) (args []any, named *value.Map, err error) {
	values := map[string]any{}
	for k := range given.All() {
		name, _ := k.(string)
		if !slices.ContainsFunc(j.Fields, func(f Field) bool { return f.Name == name }) {
			return nil, nil, badf("the job has no field %.40q; it has: %s", name, j.fieldNames())
		}
	}
	for i := range j.Fields {
		f := &j.Fields[i]
		v, ok := given.Get(f.Name)
		if !ok {
			v = f.Default
		}
		if v == nil {
			return nil, nil, badf("field %s has to be filled in", f.Name)
		}
		if values[f.Name], err = f.read(v); err != nil {
			return nil, nil, err
		}
	}

	args, _ = fillIn(j.args, values).([]any)
	if acl.HidesNamed(args) {
		return nil, nil, badf("a value has the form name=value, which minions read as a named argument there: whoever keeps the job can move that field to kwargs")
	}
	named, _ = fillIn(j.named, values).(*value.Map)
	return args, named, nil
}

func (j *Job) fieldNames() string {
	names := make([]string, len(j.Fields))
	for i, f := range j.Fields {
		names[i] = f.Name
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// fillIn returns a copy of v with the values of fields. It does not look into the values.
func fillIn(v any, values map[string]any) any {
	switch v := v.(type) {
	case string:
		if mark := fieldMark.FindStringSubmatch(v); mark != nil {
			return values[mark[1]]
		}
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = fillIn(e, values)
		}
		return out
	case *value.Map:
		if v == nil {
			return v
		}
		out := value.Sized(v.Len())
		for k, e := range v.All() {
			out.Set(k, fillIn(e, values))
		}
		return out
	}
	return v
}
