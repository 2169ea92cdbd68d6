package jobs

import (
	"bytes"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// Fields that the master adds to the stored load of a job and to the event of its start. Callers
// cannot set them: the master removes these names from their loads.
const (
	// AccountField names a caller without full rights. The job counts against that caller's share
	// of the job cache.
	AccountField = "account"
	// OnlyField means that only the listed minions get the job.
	OnlyField = "only_minions"
	// ChosenField means that the caller chose the job id.
	ChosenField = "chosen_jid"
)

// Continues reports whether a load continues the stored job: whether the same caller runs the same
// function with the same arguments under the job's id. Batches do so for their next minions
// (salt/cli/batch.py, salt/utils/batch_manager.py), and so do syndics below several masters. kept
// is the stored load; a return may have created it.
func Continues(load, kept *value.Map) bool {
	args := "arg"
	if _, fromReturn := kept.Get("return"); fromReturn {
		args = "fun_args"
	}
	account, keptAccount := load.Str(AccountField), kept.Str(AccountField)
	otherAccount := account != "" && keptAccount != "" && account != keptAccount
	return !otherAccount && load.Str("user") == kept.Str("user") &&
		samePacked(load.Value("fun"), kept.Value("fun")) && samePacked(load.Value("arg"), kept.Value(args))
}

// samePacked reports whether two values have the same packed form. By this comparison 1 differs
// from true, and NaN equals NaN.
func samePacked(a, b any) bool {
	packed, err := msgpack.Marshal(a, msgpack.Modern)
	if err != nil {
		return false
	}
	other, err := msgpack.Marshal(b, msgpack.Modern)
	return err == nil && bytes.Equal(packed, other)
}

// Outranks reports whether a load replaces kept, the stored load of the same job id. Two loads
// compete when masters of a cluster start two jobs with one id before they learn of each other's.
// An id that a master generated outranks one that a caller chose. Among chosen ids, that of a
// caller with full rights outranks the others. So all masters keep the same load, and no user can
// hide another user's job by choosing its id. If neither outranks the other, the stored load stays.
func Outranks(load, kept *value.Map) bool { return loadRank(load) > loadRank(kept) }

func loadRank(load *value.Map) int {
	switch {
	case !load.Bool(ChosenField):
		return 2
	case load.Str(AccountField) == "":
		return 1
	}
	return 0
}
