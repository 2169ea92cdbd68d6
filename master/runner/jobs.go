package runner

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/master/jobs"
	"saltern/master/value"
)

// jobsDefs returns the runners of Salt's module jobs. Sources: salt/runners/jobs.py,
// salt/utils/jid.py.
func jobsDefs() map[string]def {
	defs := map[string]def{
		"jobs.active": {"display_progress=", ofCache(jobsActive)},
		"jobs.master": {"", jobsMaster},
	}

	for name, d := range map[string]def{
		"jobs.lookup_jid": {"jid ext_source= returned= missing= display_progress=", jobsLookup},
		"jobs.list_job": {"jid ext_source= display_progress=",
			func(c *call) (any, error) { return c.listJob(c.textArgument("jid"), withBatch) }},
		"jobs.print_job": {"jid ext_source=", func(c *call) (any, error) { return c.printJob(c.textArgument("jid")) }},
		"jobs.list_jobs": {"ext_source= outputter= search_metadata= search_function= search_target= start_time= end_time= display_progress=",
			jobsList},
		"jobs.list_jobs_filter": {"count filter_find_job= ext_source= outputter= display_progress= filter_runs=",
			jobsFilter},
		"jobs.exit_success": {"jid ext_source=", jobsExitSuccess},
		"jobs.last_run":     {"ext_source= outputter= metadata= function= target= display_progress=", jobsLastRun},
	} {
		defs[name] = def{d.params, ofCache(d.do)}
	}

	defs["jobs.files"] = def{"jid", jobsFiles}
	return defs
}

// jobsFiles writes the files of a job, or of all jobs, in Salt's layout, for programs that read them. It returns their
// folder. It is no function of Salt's. All jobs need a word of their own: a script may pass a variable that is empty.
func jobsFiles(c *call) (any, error) {
	if err := requirePart("job cache", c.JobFiles == nil); err != nil {
		return nil, err
	}
	jid := c.textArgument("jid")
	if jid == "" {
		return nil, &ArgumentError{Reason: "jobs.files needs the id of a job, or the word " + jobs.AllJobs + " for all jobs"}
	}
	return c.JobFiles.LayOutAll(c.ctx, jid)
}

// ofCache returns a function that calls look, unless the look-up needs a returner. A returner is
// named by the option ext_job_cache, the argument ext_source or the option master_job_cache; the
// first of these that is set applies. For a returner the function runs Salt's own function
// (salt/runners/jobs.py _get_returner). Salt's function lacks the argument filter_runs, which the
// console uses.
func ofCache(look func(*call) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		source := cmp.Or(
			c.Options.Str("ext_job_cache"),
			c.textArgument("ext_source"),
			c.Options.Str("master_job_cache"),
		)
		if source != "" && source != "local_cache" && c.values["filter_runs"] == nil {
			return nil, ErrUnavailable
		}
		return look(c)
	}
}

// format returns the description of a job in the form of the runner jobs. If the load is empty, it
// describes a job that does not exist.
func format(jid string, load *value.Map) *value.Map {
	if load.Len() == 0 {
		return value.NewMap("Error", "Cannot contact returner or no job with this jid", "StartTime",
			jobs.StartTime(jid))
	}
	out := describe(load)
	if v, ok := load.Get("Minions"); ok {
		out.Set("Minions", v)
	}
	out.Set("StartTime", jobs.StartTime(jid))
	return out
}

func describe(load *value.Map) *value.Map {
	or := func(key string, def any) any {
		if v, ok := load.Get(key); ok {
			return v
		}
		return def
	}

	out := value.NewMap(
		"Function", or("fun", "unknown-function"),
		"Arguments", or("arg", []any{}),
		"Target", "unknown-target",
		"Target-type", "list",
		"User", or("user", "root"))

	target, kind := jobs.Target(load)
	if target != nil {
		out.Set("Target", target)
	}
	if kind != nil {
		out.Set("Target-type", kind)
	}
	if delimiter := jobs.Delimiter(load); delimiter != "" { // Salt does not tell it
		out.Set("Delimiter", delimiter)
	}
	if of := load.Map(jobs.SavedField); of != nil {
		out.Set("Saved", of)
	}
	if m := jobs.Metadata(load); m != nil {
		out.Set("Metadata", m)
	}

	return out
}

// outputter returns data together with the outputter that the caller names. If the caller names
// none, it returns data alone.
func (c *call) outputter(data any) any {
	if o := c.values["outputter"]; value.Truth(o) {
		return value.NewMap("outputter", o, "data", data)
	}
	return data
}

func (c *call) endtime(jid string, into *value.Map) error {
	if !c.Options.Bool("job_cache_store_endtime") {
		return nil
	}
	text, err := c.Jobs.Endtime(c.ctx, jid)
	if err == nil && text != "" {
		into.Set("EndTime", text)
	}
	return err
}

// listJob returns the result of jobs.list_job. For an invalid job id it returns the same result as
// for a job that does not exist.
func (c *call) listJob(jid string, batch bool) (*value.Map, error) {
	out := value.NewMap("jid", jid)
	body, err := c.jobBody(jid, batch)
	if err != nil {
		return nil, err
	}
	out.Update(body)
	return out, nil
}

// withBatch has a job described with how far its batch is, for which another master may be asked.
const withBatch = true

func (c *call) jobBody(jid string, batch bool) (*value.Map, error) {
	if err := requirePart("job cache", c.Jobs == nil); err != nil {
		return nil, err
	}

	c.showProgress("Querying returner: local_cache")
	load, err := c.Jobs.Load(c.ctx, jid)
	if errors.Is(err, jobs.ErrJID) {
		out := format(jid, nil)
		out.Set("Result", &value.Map{})
		return out, nil
	}

	if errors.Is(err, jobs.ErrBrokenLoad) { // Salt's function treats such a job as missing
		c.Log.Warn("load of a job is broken; its returns are shown", "jid", jid, "error", err)
		err = nil
	}

	if err != nil {
		return nil, err
	}

	result, err := c.Jobs.Returns(c.ctx, jid)
	if err != nil {
		return nil, err
	}
	var problem error
	if load == nil && result.Len() == 0 && c.Older != nil && c.textArgument("ext_source") == "" {
		load, result, problem = c.Older.Job(c.ctx, jid)
	}
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}

	out := format(jid, load)
	if problem != nil {
		out.Set("Fault", problem.Error())
		if load.Len() == 0 {
			out.Set("Error", fmt.Sprintf("%s: %s", out.Str("Error"), problem))
		}
	}
	out.Set("Result", result)
	if mute := c.muteSyndics(load, result); len(mute) > 0 {
		out.Set("Syndics", anyList(mute))
	}
	of := load.Map(jobs.BatchField)
	if batch && (of != nil || load.Len() == 0) { // a batch that waits for others has no load yet
		if state := c.batchOf(jid, of); state.Len() > 0 {
			out.Set("Batch", state)
		}
	}
	return out, c.endtime(jid, out)
}

// muteSyndics returns the syndics among the minions of a job that have not answered it. Salt does not tell them
// from minions that are away.
func (c *call) muteSyndics(load, returns *value.Map) (mute []string) {
	if c.Syndics == nil {
		return nil
	}
	for _, e := range load.List("Minions") {
		id, _ := e.(string)
		if c.Syndics.Known(id) && returns.Map(id) == nil {
			mute = append(mute, id)
		}
	}
	return mute
}

func (c *call) printJob(jid string) (any, error) {
	body, err := c.jobBody(jid, withBatch)
	if err != nil {
		return nil, err
	}
	return value.NewMap(jid, body), nil
}

func jobsLookup(c *call) (any, error) {
	data, err := c.listJob(c.textArgument("jid"), !withBatch)
	if err != nil {
		return nil, err
	}

	result := data.Map("Result")
	out := &value.Map{}
	var outputter any
	for id, v := range result.All() {
		ret, _ := v.(*value.Map)
		c.showProgress("%s", id)
		if c.flagArgument("returned", true) {
			out.Set(id, get(ret, "return"))
		}

		if o := get(ret, "out"); outputter == nil && value.Truth(o) {
			outputter = o
		}
	}

	if c.flagArgument("missing", false) {
		for _, id := range data.List("Minions") {
			if _, ok := result.GetAny(id); !ok {
				out.Set(id, "Minion did not return")
			}
		}
	}

	if outputter != nil {
		return value.NewMap("outputter", outputter, "data", out), nil
	}

	return out, nil
}

func jobsExitSuccess(c *call) (any, error) {
	data, err := c.listJob(c.textArgument("jid"), !withBatch)
	if err != nil {
		return nil, err
	}

	out := &value.Map{}
	for _, id := range data.List("Minions") {
		out.Set(id, false)
	}

	for id, v := range data.Map("Result").All() {
		if ret, ok := v.(*value.Map); ok && value.Truth(get(ret, "return")) {
			out.Set(id, true)
		}
	}

	return out, nil
}

// jobQuery returns the query that the arguments of a listing describe. metadata, function and
// target are the names of these arguments. jobQuery returns false when no job can match.
func (c *call) jobQuery(metadata, function, target string) (jobs.Query, bool, error) {
	q := jobs.Query{Functions: splitInput(orNil(c.values[function])), Targets: splitInput(orNil(c.values[target]))}
	if v := c.values[metadata]; value.Truth(v) {
		m, ok := v.(*value.Map)
		if !ok {
			return q, false, nil // as in Salt, no job matches
		}
		q.Metadata = m
	}

	var err error
	if q.From, err = c.timeArgument("start_time"); err != nil {
		return q, false, err
	}

	q.To, err = c.timeArgument("end_time")
	return q, true, err
}

func orNil(v any) any {
	if !value.Truth(v) {
		return nil
	}
	return v
}

func jobsList(c *call) (any, error) {
	if err := requirePart("job cache", c.Jobs == nil); err != nil {
		return nil, err
	}

	c.showProgress("Querying returner local_cache for jobs.")
	q, any, err := c.jobQuery("search_metadata", "search_function", "search_target")
	out := &value.Map{}
	if err != nil || !any {
		return c.outputter(out), err
	}

	found := map[string]*value.Map{} // only the needed fields, since loads may be large
	err = jobs.Visit(c.ctx, c.Jobs, q, func(j jobs.Job) error {
		found[j.JID] = describe(j.Load)
		return nil
	})
	if err != nil {
		return nil, err
	}

	for _, jid := range slices.Sorted(maps.Keys(found)) {
		d := found[jid]
		d.Set("StartTime", jobs.StartTime(jid))
		if err := c.endtime(jid, d); err != nil {
			return nil, err
		}
		out.Set(jid, d)
	}

	return c.outputter(out), nil
}

// jobsFilter lists the newest jobs. Salt lacks the argument filter_runs: without it, the many
// runner runs that pages and programs start soon displace the jobs for minions from the list.
func jobsFilter(c *call) (any, error) {
	if err := requirePart("job cache", c.Jobs == nil); err != nil {
		return nil, err
	}

	c.showProgress("Querying returner local_cache for jobs.")
	n, err := c.number("count", 0)
	out := []any{}
	if err != nil || n < 1 {
		return c.outputter(out), err
	}

	list, err := jobs.Find(c.ctx, c.Jobs,
		jobs.Query{
			Last:      int(min(n, 1e6)),
			NoFindJob: c.flagArgument("filter_find_job", true),
			NoRuns:    c.flagArgument("filter_runs", false),
		})
	if err != nil {
		return nil, err
	}

	for _, j := range list {
		d := describe(j.Load)
		d.Set("JID", j.JID)
		d.Set("StartTime", jobs.StartTime(j.JID))
		out = append(out, d)
	}

	return c.outputter(out), nil
}

func jobsLastRun(c *call) (any, error) {
	if err := requirePart("job cache", c.Jobs == nil); err != nil {
		return nil, err
	}
	q, any, err := c.jobQuery("metadata", "function", "target")
	if err != nil || !any {
		return false, err
	}
	q.Last = 1
	list, err := jobs.Find(c.ctx, c.Jobs, q)
	if err != nil || len(list) == 0 {
		return false, err
	}
	return c.printJob(list[0].JID)
}

func jobsMaster(c *call) (any, error) {
	out := []any{}
	for _, run := range c.runners() {
		out = append(out, run)
	}
	return out, nil
}

func jobsActive(c *call) (any, error) {
	if err := requirePart("minions", c.Minions == nil); err != nil {
		return nil, err
	}

	a, err := c.Minions.Ask(c.ctx, Question{Target: "*", TargetType: "glob", Fun: "saltutil.running"})
	if err != nil {
		return nil, err
	}

	out := &value.Map{}
	running := map[string][]any{}
	for _, id := range sortedKeys(a.Returns) {
		c.showProgress("Received reply from minion %s", id)
		for _, v := range a.Returns[id].List("return") {
			job, ok := v.(*value.Map)
			jid := job.Str("jid")
			if !ok || jid == "" {
				continue
			}

			if _, seen := out.Get(jid); !seen {
				out.Set(jid, format(jid, job))
			}

			running[jid] = append(running[jid], value.NewMap(id, get(job, "pid")))
		}
	}

	for k, v := range out.All() {
		jid, d := k.(string), v.(*value.Map)
		returned := []any{}
		if c.Jobs != nil && jobs.Valid(jid) {
			rets, err := c.Jobs.Returns(c.ctx, jid)
			if err != nil {
				return nil, err
			}
			returned = anyList(rets.Keys())
		}

		d.Set("Running", running[jid])
		d.Set("Returned", returned)
	}

	return out, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// timeLayouts lists the forms of times that this runner accepts. Salt accepts all forms that
// python-dateutil parses.
var timeLayouts = []string{
	"2006, Jan 2 15:04:05.999999", "2006, Jan 2 15:04", "2006, Jan 2",
	"2006-01-02T15:04:05.999999Z07:00", "2006-01-02T15:04:05.999999", "2006-01-02T15:04",
	"2006-01-02 15:04:05.999999", "2006-01-02 15:04", "2006-01-02",
	"2006/01/02 15:04:05", "2006/01/02 15:04", "2006/01/02",
	"Jan 2 2006 15:04:05", "Jan 2 2006 15:04", "Jan 2 2006", "Jan 2, 2006 15:04:05", "Jan 2, 2006 15:04", "Jan 2, 2006",
	"2 Jan 2006 15:04:05", "2 Jan 2006 15:04", "2 Jan 2006", "01/02/2006 15:04", "01/02/2006", "20060102", "20060102150405",
}

// timeArgument returns an argument as a time in UTC, the time zone of job ids. It returns the zero
// time when the argument is missing.
func (c *call) timeArgument(name string) (time.Time, error) {
	s := strings.TrimSpace(c.textArgument(name))
	if s == "" {
		return time.Time{}, nil
	}
	for _, l := range timeLayouts {
		if t, err := time.ParseInLocation(l, s, time.UTC); err == nil {
			return t, nil
		}
	}
	return time.Time{}, &ArgumentError{Reason: fmt.Sprintf("%s: %q is not a time", name, s)}
}
