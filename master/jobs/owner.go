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
	// BatchField marks a job that gets to a part of its minions at a time. It holds a map of the number
	// of all minions ("minions"), of those that did not answer a ping ("absent") and of how many get the
	// job at a time ("size"), the id of the master that runs it ("master"), whether that obeys orders which
	// were left for it ("orders"), the target as it was asked for ("tgt" and "tgt_type", and "delimiter" unless
	// it is a colon; a long one is left out) and how the batch was asked for ("asked", see batch.Spec). Masters
	// of an older version leave out all but the first and the third.
	BatchField = "saltern_batch"
	// SavedField marks a job that a saved job has started. It holds a map with the name of the saved job ("job")
	// and, if the schedule ran it, of the schedule's entry ("schedule").
	SavedField = "saltern_saved"
)

// OwnFields returns the fields above. The loads of Salt's masters do not have them, nor do returns.
func OwnFields() []string {
	return []string{AccountField, OnlyField, ChosenField, BatchField, SavedField}
}

// Continues reports whether a load continues the stored job: whether the same caller runs the same
// function with the same arguments under the job's id. Batches send such loads for their next
// minions (salt/cli/batch.py, salt/utils/batch_manager.py), and so do syndics below several
// masters. stored is the load of the stored job; a return may have created it.
func Continues(load, stored *value.Map) bool {
	args := "arg"
	if _, fromReturn := stored.Get("return"); fromReturn {
		args = "fun_args"
	}
	account, keptAccount := load.Str(AccountField), stored.Str(AccountField)
	otherAccount := account != "" && keptAccount != "" && account != keptAccount
	return !otherAccount && load.Str("user") == stored.Str("user") &&
		samePacked(load.Value("fun"), stored.Value("fun")) && samePacked(load.Value("arg"), stored.Value(args))
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

// Outranks reports whether a load replaces stored, the stored load with the same job id. Two loads
// compete when two masters of a cluster start jobs with the same id at about the same time. An id
// that a master generated outranks one that a caller chose. Among ids that callers chose, the id of
// a caller with full rights outranks the others. So all masters keep the same load, and no user can
// hide another user's job by choosing its id. If neither outranks the other, Outranks returns
// false.
func Outranks(load, stored *value.Map) bool { return Rank(load) > Rank(stored) }

// TopRank is the rank of a load whose job id a master generated.
const TopRank = 2

// Rank returns the rank of a load that a master published, from 0 to TopRank. See Outranks.
func Rank(load *value.Map) int {
	switch {
	case !load.Bool(ChosenField):
		return TopRank
	case load.Str(AccountField) == "":
		return 1
	}
	return 0
}
