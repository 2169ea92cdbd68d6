package saved

import (
	"slices"
	"strings"

	"saltern/master/value"
)

// checkLinks checks what an object says of other objects.
func (s *Objects) checkLinks(o *Object) error {
	switch {
	case o.Target != nil:
		return s.checkTargetLinks(o)
	case o.Job != nil:
		return s.checkJobLinks(o)
	case o.Schedule != nil && o.Schedule.Job != "":
		job := s.Get(KindJob, o.Schedule.Job)
		if job == nil || job.Job == nil {
			return badf("schedule %s: there is no saved job %s that could be run", o.Name, o.Schedule.Job)
		}
		fields := o.Schedule.plan.Kwargs.Clone()
		if test, given := fields.Get("test"); given {
			if _, flag := test.(bool); !flag {
				return badf("schedule %s: test is True or False", o.Name)
			}
			fields.Delete("test")
		}
		if _, _, err := job.Job.Fill(fields); err != nil {
			return badf("schedule %s: %v", o.Name, err)
		}
	}
	return nil
}

func (s *Objects) checkTargetLinks(o *Object) error {
	groups := s.groups.Clone()
	groups.Set(o.Name, o.Target.words()) // also checked if the configuration has a group of that name
	err := compile(o.Name, "nodegroup", groups)
	if err == nil {
		err = compile(o.Target.Expression, o.Target.Type, groups)
	}
	if err != nil {
		return badf("target %s: %v", o.Name, err)
	}
	return nil
}

func (s *Objects) checkJobLinks(o *Object) error {
	expression, kind, err := s.targetOf(o.Job)
	if err == nil {
		err = compile(expression, kind, s.groups)
	}
	if err != nil {
		return badf("job %s: %v", o.Name, err)
	}
	return nil
}

// targetOf returns the target of a job with its type. A saved target that the job names counts
// before a nodegroup of that name in the configuration.
func (s *Objects) targetOf(j *Job) (expression, kind string, err error) {
	if j.TargetType != "" {
		return j.Target, j.TargetType, nil
	}
	o := s.Get(KindTarget, j.Target)
	if o == nil || o.Target == nil {
		return "", "", badf("there is no saved target %s", j.Target)
	}
	return o.Target.Expression, o.Target.Type, nil
}

// link names an object that another object needs.
type link struct {
	kind Kind
	name string
}

// links returns the objects that an object names: a job its target, a schedule its job, and targets
// other targets as nodegroups.
func (o *Object) links() (out []link) {
	switch {
	case o.Target != nil:
		return groupLinks(o.Target.Expression, o.Target.Type)
	case o.Job != nil && o.Job.TargetType == "":
		return []link{{KindTarget, o.Job.Target}}
	case o.Job != nil:
		return groupLinks(o.Job.Target, o.Job.TargetType)
	case o.Schedule != nil && o.Schedule.Job != "":
		return []link{{KindJob, o.Schedule.Job}}
	}
	return nil
}

// groupLinks returns the nodegroups of a target.
func groupLinks(expression, kind string) (out []link) {
	switch kind {
	case "nodegroup":
		return []link{{KindTarget, expression}}
	case "compound":
		for word := range strings.FieldsSeq(expression) {
			if name, ok := strings.CutPrefix(word, "N@"); ok {
				out = append(out, link{KindTarget, name})
			}
		}
	}
	return out
}

// users returns the objects that name one of these.
func (s *Objects) users(named map[link]bool) (out []*Object) {
	for _, kind := range kinds() {
		for _, o := range s.All(kind) {
			if slices.ContainsFunc(o.links(), func(l link) bool { return named[l] }) {
				out = append(out, o)
			}
		}
	}
	return out
}

// sameSettings reports whether an object has these settings.
func (o *Object) sameSettings(settings *value.Map) bool { return value.Equal(o.settings, settings) }
