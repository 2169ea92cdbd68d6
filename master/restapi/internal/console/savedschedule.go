package console

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"saltern/master/saltyaml"
	"saltern/master/value"
)

// Ways in which the form says when an entry runs.
const (
	everyWay = "every"
	dailyWay = "daily"
	cronWay  = "cron"
	otherWay = "other"
)

// scheduleForm is the form of a saved entry of the schedule.
type scheduleForm struct {
	Name, Description string
	Exists            bool
	Revision          int64
	Job               string // name of the saved job that it runs; "": Function
	Jobs              []string
	Function          string
	Functions         []offer
	Args              string // arguments of the function, or "field=value" lines for the job
	Way               string
	Every, Unit       string
	Day, At           string
	Cron              string
	More              string // all further settings, as YAML
	Enabled           bool
	Days, Units       []string
}

var (
	scheduleDays  = []string{"every day", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
	scheduleUnits = []string{"seconds", "minutes", "hours", "days"}
	timeOfDay     = regexp.MustCompile(`^([01]?[0-9]|2[0-3]):[0-5][0-9]$`)
)

// scheduleFormOf returns the form of an entry with these settings.
func scheduleFormOf(name string, m *value.Map) scheduleForm {
	d := scheduleForm{
		Name:        name,
		Exists:      true,
		Description: m.Str("description"),
		Job:         m.Str("saved"),
		Function:    m.Str("function"),
		Enabled:     m.Value("enabled") != false,
	}
	d.Revision, _ = m.Int("revision")

	if d.Job != "" {
		for k, v := range m.Map("kwargs").All() {
			d.Args += value.Str(k) + "=" + settingText(v) + "\n"
		}
		d.Args = strings.TrimSpace(d.Args)
	} else {
		d.Args = savedLines(m.List("args"), m.Map("kwargs"))
	}

	rest := m.Clone()
	for _, key := range append(slices.Clone(marksOfObject), "description", "saved", "function", "enabled", "args", "kwargs") {
		rest.Delete(key)
	}
	d.takeTimes(rest)
	if rest.Len() > 0 {
		text, err := saltyaml.Encode(rest)
		if err == nil {
			d.More = string(text)
		}
	}

	return d
}

// takeTimes takes from the settings what says when the entry runs, if the form has a field for it.
func (d *scheduleForm) takeTimes(rest *value.Map) {
	d.Way = otherWay
	for _, unit := range scheduleUnits {
		if v, ok := rest.Get(unit); ok && d.Way == otherWay {
			d.Way, d.Every, d.Unit = everyWay, settingText(v), unit
			rest.Delete(unit)
		}
	}

	if cron, ok := rest.Value("cron").(string); ok && d.Way == otherWay {
		d.Way, d.Cron = cronWay, cron
		rest.Delete("cron")
	}

	when, ok := rest.Value("when").(string)
	if !ok || d.Way != otherWay {
		return
	}
	day, at := scheduleDays[0], when
	if word, later, two := strings.Cut(when, " "); two {
		day, at = word, later
	}
	if slices.Contains(scheduleDays, day) && timeOfDay.MatchString(at) {
		d.Way, d.Day, d.At = dailyWay, day, at
		rest.Delete("when")
	}
}

// scheduleFormIn returns the form of an entry as it was sent.
func scheduleFormIn(form url.Values) scheduleForm {
	get := func(name string) string { return strings.TrimSpace(cutText(form.Get(name), maxText)) }
	return scheduleForm{
		Name:        get("name"),
		Description: get("description"),
		Exists:      revisionOf(form) > 0,
		Revision:    revisionOf(form),
		Job:         get("job"),
		Function:    get("fun"),
		Args:        cutText(form.Get("arg"), maxTarget),
		Way:         get("way"),
		Every:       get("every"),
		Unit:        get("unit"),
		Day:         get("day"),
		At:          get("at"),
		Cron:        get("cron"),
		More:        cutText(form.Get("more"), maxTarget),
		Enabled:     get("enabled") != "",
	}
}

// settings returns the settings of the entry that the form describes. problem names a fault of the
// form, or is "". The master checks the settings.
func (d *scheduleForm) settings() (m *value.Map, problem string) {
	m = value.NewMap()
	more := value.NewMap()
	if strings.TrimSpace(d.More) != "" {
		if more = mapOf(d.More); more == nil {
			return nil, "The further settings must be a map in YAML, as maxrunning: 1."
		}
	}

	if d.Description != "" {
		m.Set("description", d.Description)
	}

	if problem = d.setWork(m); problem == "" {
		problem = d.setTimes(m)
	}
	if problem == "" {
		problem = addFurther(m, more)
	}
	if !d.Enabled {
		m.Set("enabled", false)
	}

	return m, problem
}

// addFurther adds the further settings, which must not repeat what the form has a field for.
func addFurther(m, more *value.Map) (problem string) {
	for k, v := range more.All() {
		_, twice := m.GetAny(k)
		if name, _ := k.(string); twice || slices.Contains([]string{"name", "revision", "enabled"}, name) {
			return "The further settings have " + briefName(value.Str(k)) + ", which the form has a field for: write it there alone."
		}
		m.Set(k, v)
	}
	return ""
}

// setWork sets what the entry runs.
func (d *scheduleForm) setWork(m *value.Map) (problem string) {
	if d.Job == "" {
		if d.Function == "" {
			return "Say what is to run: a saved job, or a runner function."
		}
		m.Set("function", d.Function)
		args, named := parsedWords(d.Args)
		if len(args) > 0 {
			m.Set("args", args)
		}
		if named.Len() > 0 {
			m.Set("kwargs", named)
		}
		return ""
	}

	if d.Function != "" {
		return "Choose a saved job or a function, not both."
	}

	m.Set("saved", d.Job)
	fields := value.NewMap()
	for _, line := range textLines(d.Args) {
		name, text, ok := strings.Cut(line, "=")
		if !ok {
			return "The fields of a saved job are lines such as version=7. This is none: " + briefName(line)
		}
		fields.Set(strings.TrimSpace(name), text)
	}
	if fields.Len() > 0 {
		m.Set("kwargs", fields)
	}

	return ""
}

// parsedWords returns the arguments that lines express, by the rules of a command line.
func parsedWords(text string) (args []any, named *value.Map) {
	args, named = parsedArgs(textLines(text)), value.NewMap()
	if n := len(args); n > 0 {
		if m, ok := args[n-1].(*value.Map); ok && m.Value("__kwarg__") == true {
			args, named = args[:n-1], m.Clone()
			named.Delete("__kwarg__")
		}
	}
	return args, named
}

// setTimes sets when the entry runs.
func (d *scheduleForm) setTimes(m *value.Map) (problem string) {
	for _, field := range []struct{ way, word, text string }{
		{dailyWay, "At a time of day", d.At},
		{everyWay, "Again and again", d.Every},
		{cronWay, "By cron", d.Cron},
	} {
		if field.text != "" && field.way != d.Way {
			return "There is a time for another way than the chosen one: choose " + field.word + ", or empty the field " + briefName(field.text) + "."
		}
	}

	switch d.Way {
	case everyWay:
		n, err := strconv.ParseInt(d.Every, 10, 64)
		if err != nil || n < 1 || !slices.Contains(scheduleUnits, d.Unit) {
			return "How often it runs is a whole number, as 10 minutes."
		}
		m.Set(d.Unit, n)
	case dailyWay:
		if !timeOfDay.MatchString(d.At) || !slices.Contains(scheduleDays, d.Day) {
			return "The time of day is written as 17:30."
		}
		when := d.At
		if d.Day != scheduleDays[0] {
			when = d.Day + " " + d.At
		}
		m.Set("when", when)
	case cronWay:
		if d.Cron == "" {
			return "Cron takes five fields, as 0 2 * * mon-fri."
		}
		m.Set("cron", d.Cron)
	case otherWay:
	default:
		return "Say when it runs."
	}
	return ""
}

func editSchedule(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d := scheduleForm{Way: dailyWay, Enabled: true, Job: cutText(v.query.Get("job"), maxName)}
	if name := cutText(v.query.Get("name"), maxName); name != "" {
		m, err := savedObject(ctx, v, savedSchedules, name)
		if err != nil {
			return Answer{}, err
		}
		d = scheduleFormOf(name, m)
		if again, problem := d.settings(); problem != "" || !expressible(m, again) {
			return Answer{}, &Refusal{http.StatusConflict, notByForm}
		}
	}
	return d.render(c, ctx, v, http.StatusOK, "")
}

func (d *scheduleForm) render(c *Console, ctx context.Context, v *visit, code int, problem string) (Answer, error) {
	all, err := savedObjects(ctx, v, savedJobs)
	if err != nil {
		return Answer{}, err
	}

	d.Jobs = all.Keys()
	slices.Sort(d.Jobs)
	if d.Job != "" && !slices.Contains(d.Jobs, d.Job) {
		d.Jobs = append(d.Jobs, d.Job)
	}

	d.Functions = append(runnersToRun(), offer{Name: orchestrate})
	d.Days, d.Units = scheduleDays, scheduleUnits
	title := "Schedule something"
	if d.Exists {
		title = "Change the entry " + briefName(d.Name)
	}
	return c.render(v, "scheduleentry", code, page{Title: title, Data: *d, Problem: problem})
}

func saveSchedule(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}

	d := scheduleFormIn(form)
	settings, problem := d.settings()
	if problem == "" {
		settings.Set("name", d.Name)
		settings.Set("revision", d.Revision)
		_, problem, err = v.askRunner(ctx, setSavedSchedule, settings)
	}
	if err != nil {
		return Answer{}, err
	}
	if problem != "" {
		return d.render(c, ctx, v, http.StatusBadRequest, problem)
	}

	return c.redirectTo("/schedule", "saved"), nil
}

// switchSchedule switches a saved entry on or off, if nobody has changed it since it was shown.
func switchSchedule(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}

	do := form.Get("do")
	if do != "on" && do != "off" {
		return Answer{}, &Refusal{http.StatusBadRequest, "An entry can be switched on or off."}
	}

	name := cutText(form.Get("name"), maxName)
	m, err := savedObject(ctx, v, savedSchedules, name)
	if err != nil {
		return Answer{}, err
	}

	settings := m.Clone()
	for _, key := range append(slices.Clone(marksOfObject), "enabled") {
		settings.Delete(key)
	}
	if do == "off" {
		settings.Set("enabled", false)
	}
	settings.Set("name", name)
	settings.Set("revision", revisionOf(form))

	_, problem, err := v.askRunner(ctx, setSavedSchedule, settings)
	if err != nil {
		return Answer{}, err
	}
	if problem != "" {
		return Answer{}, &Refusal{http.StatusConflict, "Nothing was changed: " + problem}
	}

	return c.redirectTo("/schedule", do), nil
}
