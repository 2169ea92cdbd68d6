package saved

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"saltern/master/saltyaml"
	"saltern/master/target"
	"saltern/master/value"
)

// Kind is a kind of saved objects.
type Kind string

// The kinds.
const (
	KindTarget   Kind = "target"
	KindJob      Kind = "job"
	KindSchedule Kind = "schedule"
)

func kinds() []Kind { return []Kind{KindTarget, KindJob, KindSchedule} }

// section returns the name of the part of the file that holds the objects of this kind.
func (k Kind) section() string { return string(k) + "s" }

func parseKind(text string) (Kind, error) {
	for _, k := range kinds() {
		if text == string(k) || text == k.section() {
			return k, nil
		}
	}
	return "", badf("kind is target, job or schedule, not %.40q", text)
}

// Bounds of the objects.
const (
	maxObjects     = 1000      // objects of each kind
	maxFile        = 4 << 20   // bytes of the file
	maxSettings    = 128 << 10 // bytes of one object as YAML
	maxExpression  = 64 << 10  // bytes of the expression of a target
	maxDescription = 2000      // bytes
	maxDepth       = 20        // lists and maps inside of each other
	maxValues      = 5000      // values of one object
)

// invalid is an error in what a caller has sent. Its text is for him.
type invalid string

func (e invalid) Error() string { return string(e) }

func badf(format string, a ...any) error { return invalid(fmt.Sprintf(format, a...)) }

// Object is one saved object. It is not changed once it is made.
type Object struct {
	Kind Kind
	Name string
	Mark

	// Target, Job and Schedule hold the object of its kind; the others are nil. All are nil if Fault
	// is not nil.
	Target   *Target
	Job      *Job
	Schedule *Schedule
	// Fault says why this master cannot use an object that the file holds. It may be nil: it can.
	Fault error

	settings *value.Map // as saved, without the Mark
	setHere  bool       // this master has set it, and no other has changed the file since
}

// Mark says which change made an object what it is.
type Mark struct {
	Revision uint64 // version of the file with that change
	Changed  time.Time
	By       string
}

// Names of the Mark in the file.
const (
	revisionKey = "revision"
	changedKey  = "changed"
	byKey       = "by"
)

// checkName checks the name of an object. A name is a word of a compound target and of a command
// line, so it is a plain word that YAML reads as text.
func checkName(name string) error {
	if !target.MaySave(name) {
		return badf("%.80q is no name: a name has 1 to 64 letters, digits, '_', '.' and '-', and begins with a letter", name)
	}
	if v, err := saltyaml.Decode([]byte(name), "name"); err != nil || v != any(name) {
		return badf("%q is no name, because YAML does not read it as text", name)
	}
	return nil
}

// newObject reads the settings of an object. It does not look at other objects.
func newObject(kind Kind, name string, settings *value.Map) (*Object, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := checkSize(settings); err != nil {
		return nil, err
	}

	o := &Object{Kind: kind, Name: name, settings: settings}
	var err error
	switch kind {
	case KindTarget:
		o.Target, err = readTarget(settings)
	case KindJob:
		o.Job, err = readJob(name, settings)
	case KindSchedule:
		o.Schedule, err = readSchedule(name, settings)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return o, nil
}

// checkSize bounds the settings of an object, and refuses values that the file cannot hold.
func checkSize(settings *value.Map) error {
	values := 0
	if err := checkValue(settings, 0, &values); err != nil {
		return err
	}
	text, err := saltyaml.EncodeStyle(settings, fileStyle)
	if err != nil {
		return badf("an argument cannot be saved: %v", err)
	}
	if len(text) > maxSettings {
		return badf("the object has %d bytes, at most %d", len(text), maxSettings)
	}
	return nil
}

func checkValue(v any, depth int, values *int) error {
	*values++
	if *values > maxValues || depth > maxDepth {
		return badf("the object has more than %d values, or more than %d lists inside of each other", maxValues, maxDepth)
	}
	switch v := v.(type) {
	case nil, bool, int64, float64, string:
	case []any:
		for _, e := range v {
			if err := checkValue(e, depth+1, values); err != nil {
				return err
			}
		}
	case *value.Map:
		for k, e := range v.All() {
			if _, text := k.(string); !text {
				return badf("the key %.40s of a map is not text", value.StrMax(k, 40))
			}
			if err := checkValue(e, depth+1, values); err != nil {
				return err
			}
		}
	default:
		return badf("a value of the type %T cannot be saved", v)
	}
	return nil
}

// withMark returns the settings with the Mark, as the file and runners show them.
func (o *Object) withMark() *value.Map {
	m := o.settings.Clone()
	m.Set(revisionKey, int64(o.Revision))
	m.Set(changedKey, o.Changed.UTC().Format(time.RFC3339Nano))
	m.Set(byKey, o.By)
	return m
}

// Objects are all objects at one version of the file. They are not changed once they are made.
type Objects struct {
	Version uint64
	byKind  map[Kind]map[string]*Object
	// unknown are the parts of the file, and odd the entries of a part, that only a newer release can
	// read. A change keeps them. unknown may be nil.
	unknown *value.Map
	odd     map[Kind]*value.Map
	groups  *value.Map // nodegroups of the configuration and saved targets
	entries *value.Map // schedules in the form of the option schedule
	since   map[string]time.Time
}

// Get returns an object, or nil.
func (s *Objects) Get(kind Kind, name string) *Object { return s.byKind[kind][name] }

// All returns the objects of a kind by name.
func (s *Objects) All(kind Kind) []*Object {
	out := make([]*Object, 0, len(s.byKind[kind]))
	for _, name := range slices.Sorted(maps.Keys(s.byKind[kind])) {
		out = append(out, s.byKind[kind][name])
	}
	return out
}

// Groups returns the nodegroups of the configuration, and the saved targets whose names it does not
// use. The caller must not change the map.
func (s *Objects) Groups() *value.Map { return s.groups }

// index sets what follows from the objects: groups and entries. option is the option nodegroups.
func (s *Objects) index(option *value.Map) {
	s.makeGroups(option)
	s.entries = value.NewMap()
	s.since = map[string]time.Time{}
	for _, o := range s.All(KindSchedule) {
		if o.Schedule != nil {
			s.entries.Set(o.Name, o.Schedule.entry)
			s.since[o.Name] = o.Changed
		}
	}
}

func (s *Objects) makeGroups(option *value.Map) {
	groups := value.Sized(option.Len() + len(s.byKind[KindTarget]))
	groups.Update(option)
	for _, o := range s.All(KindTarget) {
		if _, configured := option.Get(o.Name); !configured && o.Target != nil {
			groups.Set(o.Name, o.Target.words())
		}
	}
	s.groups = groups
}
