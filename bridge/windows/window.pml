/*
 * The step of a stream that follows windows as a model: a list that shows items
 * late is listed from a look-back before the watermark. Items that the topic
 * holds are dropped, the others are published in parts, each in one transaction
 * with the watermark. A pause is an arbitrarily long gap between two steps; a
 * killed process begins a session again.
 *
 * What is modelled
 *   - NITEMS items, each with a time, and with a later time, by LATE at most,
 *     from which the list shows it; a clock; a stream that begins at time 1;
 *   - Kafka: one transactional.id, fencing by "last InitProducerID wins", EndTxn
 *     whose request or reply is lost, offsets, and with DELETE records that
 *     retention deletes;
 *   - two processes that take the stream from each other at any moment;
 *   - an operator who rewinds the stream NRESETS times.
 *
 * Which function carries which step (file in bridge, functions, step)
 *   engine/recover.go       recover                  a session
 *   engine/listing.go       loadListing              load
 *   listing.go              Since                    first_mark
 *   windows/lister.go       find, window             the end of a window
 *   windows/collect.go      collect, pages           its new items, in parts
 *   windows/memory.go       isNew                    known
 *   listing.go              Moved                    commit_part: marks
 *   engine/commit.go        commit                   commit_part
 *   listing.go              Reset                    rewind
 *   kafkarecord/published.go Index                   records that are deleted
 *
 * Not modelled: the pages of a listing and its halves, items without an id, the
 * clock of the API, Redis, epochs, and resets ahead: see exactly_once.pml.
 *
 * Assertions
 *   ONCE    an item is published once, and once more after each rewind to before it
 *   COVERS  the watermark passes no item that the list shows in time: when its
 *           window is listed, or within the look-back
 *   FLOOR   nothing before the start is published, except after a rewind to there
 *
 * Variants. Each takes one rule away and must be found: they are the test of
 * this model. TestModel reads this list.
 *   NO_LOOK_BACK   a window is listed from the watermark on
 *   NO_SETTLE      a window ends now
 *   MOVE_EARLY     the watermark moves with the first part
 *   FORGET_TOPIC   a session does not read back what the topic holds
 *   KEEP_MEMORY    in doubt, items that were returned count as published
 *   FORGET_EARLY   an item is forgotten once the watermark has passed it
 *   MARK_NEW       the topic is read back from the newest mark
 *   MARK_LATE      a mark has the ends of the topic behind its window
 *   MARK_AHEAD     a mark is made at a watermark that part of a longer window has passed
 *   NO_FENCE       two processes do not fence each other
 *   READ_FIRST     the checkpoint is read before InitProducerID
 *   NO_FLOOR       a listing begins before its floor
 *   NO_AGAIN       after a rewind all that the topic holds counts
 *   AGAIN_LATER    the ends behind which items count after a rewind move with a session
 *   AGAIN_ALL      after a rewind nothing before it counts, and the look-back stays
 *   KEEP_LISTING   the listing goes on after a rewind to before it began
 *   NO_RETENTION   with DELETE: deleted records are read back as if there were none
 *
 * Configurations, to be combined with a variant
 *   NITEMS, LAST, NRESETS, BACK  items, the latest time of one, rewinds, the look-back
 *   DELETE                 retention deletes records
 *   GAP                    marks keep a distance: some are left out
 */
#ifndef NITEMS
#define NITEMS 2
#endif
#ifndef LAST
#define LAST 2
#endif
#ifndef NRESETS
#define NRESETS 1
#endif
#ifndef BACK
#define BACK 1
#endif
#define SETTLE 1
#define LATE (BACK + SETTLE)      /* what is shown later is not in time */
#define END (LAST + LATE + 1)     /* of the clock */
#define START 1
#define NONE 15
#define NOBODY 9
#define BIT(i) (1 << (i))

/* ---- the list ---- */
byte at[NITEMS], shown[NITEMS];
byte now = 0;

/* ---- Kafka: records by offset, the last one of each item, and who may commit ---- */
byte end = 0, deleted = 0, offset[NITEMS], owner = NOBODY;
bool published[NITEMS];

/* ---- the checkpoint ---- */
byte mark[END + 1];               /* the ends of the topic, by watermark; NONE is no mark */
byte watermark = START, low = START;
byte again = NONE, behind = 0;    /* since a rewind */
byte ahead = 0;                   /* behind the latest item of a part of a window */
bool placed = false;              /* a listing, or a rewind, knows the ends of the topic */

/* ---- bookkeeping for the assertions ---- */
byte copies[NITEMS];              /* of what counts since the last rewind */
byte begun = START;               /* where the stream began at the earliest */
byte resets = 0;

hidden byte i, m, f, marks = 1;

/* ---- the processes: the end of the window, what the topic holds, what of it is new ---- */
byte ends[2], held[2], news[2];
#define to ends[me]
#define known held[me]
#define fresh news[me]
#define forget(p) ends[p] = 0; held[p] = 0; news[p] = 0

#define FROM(w) ((w) > BACK -> (w) - BACK : 0)

/* f is the newest mark that is a look-back older than w, or the oldest one; NONE without */
inline first_mark(w) {
  f = NONE; i = END + 1;
  do
  :: (i > 0) ->
       i = i - 1;
#ifdef MARK_NEW
       if :: (mark[i] != NONE && f == NONE) -> f = i :: else -> skip fi
#else
       if :: (mark[i] != NONE && (f == NONE || f > FROM(w))) -> f = i :: else -> skip fi
#endif
  :: else -> break
  od;
  i = 0
}

/* what the topic holds of the items that may be listed */
inline load() {
#ifdef AGAIN_LATER
  if :: (again != NONE) -> behind = end :: else -> skip fi;
#endif
  first_mark(watermark);
  m = (f == NONE -> end : mark[f]);
  if
#ifndef NO_RETENTION
  :: (m < deleted) -> m = 0; f = 0; goto over          /* BLOCKED(retention) */
#endif
  :: else -> skip
  fi;
#ifndef FORGET_TOPIC
  do
  :: (i < NITEMS) ->
       if
#ifndef NO_AGAIN
       :: (published[i] && again != NONE && at[i] >= again) ->
            if :: (offset[i] >= behind && placed && offset[i] >= deleted) -> known = known | BIT(i) :: else -> skip fi
#endif
       :: else ->
            if :: (published[i] && offset[i] >= m && offset[i] >= deleted) -> known = known | BIT(i) :: else -> skip fi
       fi;
       i = i + 1
  :: else -> break
  od;
#endif
  i = 0; m = 0; f = 0
}

#ifdef NO_LOOK_BACK
#define OLDEST(w) (w)
#else
#define OLDEST(w) FROM(w)
#endif
#ifdef NO_FLOOR
#define LISTED(t) ((t) >= OLDEST(watermark))
#else
#define LISTED(t) ((t) >= OLDEST(watermark) && (t) >= low)
#endif

/* all that the window up to to lists, and is new; first is the oldest of it */
inline list() {
  fresh = 0;
  do
  :: (i < NITEMS) ->
       if
       :: (LISTED(at[i]) && at[i] < to && shown[i] < now && !(known & BIT(i))) -> fresh = fresh | BIT(i)
       :: else -> skip
       fi;
       i = i + 1
  :: else -> break
  od;
  i = 0
}

/* publishes a part of the window, and moves the watermark with the last one */
inline commit_part() {
  m = end;
#ifdef MARK_LATE
  do
  :: (i < NITEMS) ->
       if :: (part & BIT(i)) -> m = m + 1 :: else -> skip fi;
       i = i + 1
  :: else -> break
  od;
  i = 0;
#endif
  if :: !placed -> behind = end :: else -> skip fi;
  first_mark(watermark);
  if
  :: (f == NONE) -> mark[watermark] = m
#ifdef MARK_AHEAD
  :: (mark[watermark] == NONE && marks) -> mark[watermark] = m
#else
  :: (mark[watermark] == NONE && watermark >= ahead && marks) -> mark[watermark] = m
#endif
  :: else -> skip
  fi;
  placed = true;
  do
  :: (i < NITEMS) ->
       if
       :: (part & BIT(i)) ->
            assert(copies[i] == 0);                    /* ONCE */
            assert(at[i] >= begun);                    /* FLOOR */
            copies[i] = 1; published[i] = true; offset[i] = end; end = end + 1;
            if :: (part != fresh && at[i] >= ahead) -> ahead = at[i] + 1 :: else -> skip fi
       :: else -> skip
       fi;
       i = i + 1
  :: else -> break
  od;
  i = 0;
  if
#ifdef MOVE_EARLY
  :: true ->
#else
  :: (part == fresh) ->
#endif
       watermark = to;
       if :: (to >= ahead) -> ahead = 0 :: else -> skip fi;
       do
       :: (i < NITEMS) ->
            assert(at[i] < begun || at[i] >= to || shown[i] > to || copies[i] == 1);  /* COVERS */
            i = i + 1
       :: else -> break
       od;
       i = 0;
       first_mark(to);
       do                                              /* older marks are not needed */
       :: (i < f && i <= END) -> mark[i] = NONE; i = i + 1
       :: else -> break
       od;
       i = 0;
       if :: (again != NONE && f >= again) -> again = NONE :: else -> skip fi
  :: else -> skip
  fi;
  m = 0; f = 0
}

inline forget_marks(keep) {
  do
  :: (i <= END) -> if :: (i != keep) -> mark[i] = NONE :: else -> skip fi; i = i + 1
  :: else -> break
  od;
  i = 0
}

/* the operator's rewind to a time, in a transaction of its own */
inline rewind(target) {
  first_mark(watermark);
  if
#ifdef KEEP_LISTING
  :: (watermark > BACK && target <= watermark - BACK) ->
#else
  :: (target <= low || watermark > BACK && target <= watermark - BACK) ->
#endif
       f = NONE; forget_marks(NONE);
       low = target; again = NONE                          /* a listing begins */
  :: else ->
       forget_marks(f);
       if :: (low < FROM(watermark)) -> low = FROM(watermark) :: else -> skip fi;
       again = target
#ifdef AGAIN_ALL
       ; again = 0
#endif
  fi;
  placed = false; ahead = 0; watermark = target; resets = resets + 1;
  if :: (target < begun) -> begun = target :: else -> skip fi;
  do
  :: (i < NITEMS) -> if :: (at[i] >= target) -> copies[i] = 0 :: else -> skip fi; i = i + 1
  :: else -> break
  od;
  i = 0; f = 0
}

#ifdef NO_FENCE
#define FENCED false
#else
#define FENCED (owner != me)
#endif

/* EndTxn(commit) */
#define END_TXN(commit) \
  if :: d_step { commit }                              /* the reply arrives */ \
     :: d_step { commit } goto session                 /* the reply is lost */ \
     :: goto doubt                                     /* the request is lost */ \
  fi

proctype Bridge(byte me) {
  byte part = 0;

session:
#ifdef READ_FIRST
  atomic { forget(me); load() }
  d_step { owner = me }
#else
  atomic {
    forget(me); owner = me;
#ifndef NO_FENCE
    forget(1 - me)                                     /* it cannot commit any more */
#endif
  }
  atomic { if :: FENCED -> goto session :: else -> skip fi; load() }
#endif

window:
  atomic {
    if
    :: FENCED -> goto session                          /* as its commit would find */
#ifdef NO_SETTLE
    :: (watermark < now) -> to = now
#else
    :: (watermark + SETTLE < now) -> to = now - SETTLE
    :: (watermark + SETTLE + 1 < now) -> to = watermark + 1  /* too large for one */
#endif
    :: goto session                                    /* killed */
    :: (resets < NRESETS && !FENCED) ->
       to = watermark;                                 /* or before it */
       do :: (to > 0) -> to = to - 1 :: break od; skip;
       d_step { rewind(to) }
       goto session
    fi;
    list()
  }

next:
  atomic {
    if :: FENCED -> goto session :: else -> skip fi;
    if
    :: part = fresh
    :: (fresh & (fresh - 1)) ->                        /* the oldest of several */
       part = fresh & ~(fresh & (fresh - 1))           /* items are in the order of time */
    :: goto session                                    /* killed */
    fi;
#ifdef GAP
    if :: marks = true :: marks = false fi;
#endif
    END_TXN(commit_part())
    known = known | part; fresh = fresh & ~part;
    if
    :: (fresh == 0) -> to = 0; part = 0;
#ifdef FORGET_EARLY
       known = 0;
#endif
       goto window
    :: else -> part = 0; goto next
    fi
  }

doubt:
#ifdef KEEP_MEMORY
  atomic { owner = me; known = known | fresh; to = 0; fresh = 0; part = 0 }
  goto window;
#else
  part = 0;
  goto session;
#endif

over:
  skip
}

proctype World() {
end_world:
  do
  :: (now < END) -> now = now + 1
#ifdef DELETE
  :: (deleted < end) -> deleted = deleted + 1
#endif
  od
}

init {
  atomic {
    do
    :: (m <= END) -> mark[m] = NONE; m = m + 1
    :: else -> break
    od;
    m = 0;
    do
    :: (m < NITEMS) ->
         if :: (m > 0) -> at[m] = at[m - 1] :: else -> skip fi;   /* they are alike */
         do :: (at[m] < LAST) -> at[m] = at[m] + 1 :: break od;
         shown[m] = at[m];
         do :: (shown[m] < at[m] + LATE) -> shown[m] = shown[m] + 1 :: break od;
         m = m + 1
    :: else -> break
    od;
    m = 0;
    run World(); run Bridge(0); run Bridge(1)
  }
}
