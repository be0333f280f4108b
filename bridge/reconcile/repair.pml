/*
 * A repair as a model: it compares the export with the topic and publishes the
 * missing events, with a mark in the same transaction, while the live stream
 * goes on. A pause is an arbitrarily long gap between two steps; a killed process
 * is one that never goes on.
 *
 * What is modelled
 *   - EVENTS, each a part of the range that is compared by itself. The API
 *     ingests an event, then lists it: ahead of the live stream's cursor, or
 *     behind the cursor, where the stream never reads it;
 *   - the live stream, which reads all listed events, publishes those ahead of
 *     its cursor with a checkpoint at the end of the export, and may be moved
 *     (all events are then ahead again, in a new epoch);
 *   - RUNS commands, each in a process; Kafka as in ../deadletter/retry.pml; the
 *     topic, which may be recreated, and with FINITE loses the events that
 *     repairs published.
 *
 * Which function carries which step (file in bridge, functions, step)
 *   reconcile/reconcile.go   Run                        a command: position, topic, session, parts
 *   reconcile/repair.go      openRepair, readMarks      the session, then the marks
 *   reconcile/live.go        frontier, awaits, passed   what the stream had read at its last end
 *   reconcile/part.go        compare, look              a part: the export, then the topic
 *   reconcile/live.go        awaitEnd, unmoved          proof; before each commit
 *   reconcile/repair.go      publish, commit            what is published
 *   kafkasink/repair.go      Publish, goOn              transact, doubt
 *
 * Not modelled: dead letters (../deadletter/retry.pml); events of the live stream
 * that retention deleted (a range that begins before those is refused); marks
 * that are forgotten after 90 days; clocks: an event of a checkpoint's time is
 * "near" it, and "passed" only if it was listed by then.
 *
 * Assertions
 *   ONCE    an event is published once into a topic with one id and in an epoch
 *   LIVE    a repair publishes nothing that the stream may still publish, unless
 *           the stream is moved after the last check
 *   THERE   an event that is reported as held or repaired, before or now, is in
 *           the topic that existed when the repair began, or was deleted there
 *
 * Variants. Each takes one rule away and must be found: they are the test of
 * this model. TestModel reads this list.
 *   NO_FRONTIER     an event that the stream may not have read is published
 *   NO_LATE         an event near the frontier counts as passed
 *   NO_AWAIT        an event without an ingestion time counts as passed
 *   OLD_DRAIN       a checkpoint that is committed later proves it, whenever its
 *                   page was read
 *   NO_SECOND_LOOK  the topic is not read again after that proof
 *   DRAINED_STAYS   the proof for a part counts for the next one
 *   NO_EPOCH        the epoch is not compared before a commit
 *   NO_KEEP         the topic's id is not compared
 *   NO_TOPIC_ID     a mark does not name the topic
 *   LSO_STALE       the topic is read without waiting for open transactions
 *   LOOK_FIRST      the topic is read before InitProducerID
 *   NO_FENCE        nobody is fenced
 *   MARK_LATER      the mark is committed after the event
 *   MARK_BEFORE     the mark is committed before the event
 *   NO_DOUBT        in doubt the event is published again without a look
 *   NO_STRANGER     in doubt marks of another process are not looked at
 *   OTHER_SESSION   in doubt the next session may publish into another topic
 *
 * Configurations, to be combined with a variant
 *   UNDATED         events have no ingestion time
 *   FINITE          see above
 *   EVENTS, RUNS, FAULTS  number of events (1 or 2), of commands, and of lost
 *                   requests and replies
 *   POLLS, MOVES, REMAKES, OPENS  how often the stream reads and is moved, the
 *                   topic is made again, and a transaction is open there
 */
#ifndef RUNS
#define RUNS 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef POLLS
#define POLLS 2
#endif
#ifndef MOVES
#define MOVES 0
#endif
#ifndef REMAKES
#define REMAKES 0
#endif
#ifndef EVENTS
#define EVENTS 1
#endif
#ifndef OPENS
#define OPENS 0
#endif
#if EVENTS == 1
#define ALL(x) x(0)
#define ANY(x) x(0)
#else
#define ALL(x) x(0); x(1)
#define ANY(x) (x(0) || x(1))
#endif
#define NOBODY 9
#define FAULT (faults > 0) -> faults = faults - 1

/* ---- the API: places of an event ---- */
#define NOWHERE 0
#define INGESTED 1
#define AHEAD 2
#define BEHIND 3
byte place[EVENTS];

/* ---- the live stream ---- */
#define AFTER 0                   /* not ingested when it was read */
#define NEAR 1
#define PASSED 2
byte epoch = 0;
byte front[EVENTS];               /* by its newest checkpoint at the end of the export */
byte fetches = 0;                 /* of pages at the end of the export */
byte end_at = 0;                  /* the fetch of that checkpoint; 0 is none in this epoch */
bool fetched = false;             /* and not committed */
byte got[EVENTS];                 /* the places at that fetch */

/* ---- the topic ---- */
byte topic = 1;                   /* its id */
bool held[EVENTS];
bool repaired[EVENTS];            /* it was a repair that published it last */
bool gone[EVENTS];                /* retention has deleted it */
byte ever[EVENTS];                /* how often it was published into it, in this epoch */
byte losses = 0;                  /* times that it was made again */
bool open = false;                /* somebody else's transaction */

/* ---- marks and their transactional.id ---- */
byte names[EVENTS];               /* the topics that marks of it name, a bit for each */
byte by[EVENTS];                  /* by which command, the last one */
byte producer = NOBODY;

byte runs = 0, faults = FAULTS, polls = POLLS, moves = MOVES, remakes = REMAKES, opens = OPENS;
#ifdef FINITE
byte deletions = 1;
#endif

inline put_live(i) {
  if :: (got[i] == AHEAD && place[i] == AHEAD) ->
          held[i] = true; repaired[i] = false; place[i] = BEHIND; ever[i] = ever[i] + 1;
          assert(ever[i] <= 1)                         /* ONCE */
     :: else -> skip
  fi;
  if :: (got[i] == NOWHERE) -> front[i] = AFTER
     :: (got[i] != NOWHERE) -> front[i] = NEAR
     :: (got[i] >= AHEAD) -> front[i] = PASSED         /* long enough ago */
  fi
}

#define FETCH(i) got[i] = place[i]
#define FORGET(i) got[i] = NOWHERE
#define MOVE(i) if :: (place[i] == BEHIND) -> place[i] = AHEAD :: else -> skip fi; ever[i] = 0; front[i] = AFTER
#define REMAKE(i) held[i] = false; repaired[i] = false; gone[i] = false; ever[i] = 0
#define DELETE(i) if :: repaired[i] -> held[i] = false; gone[i] = true :: else -> skip fi
#define API(i) \
  :: (place[i] == NOWHERE) -> place[i] = INGESTED \
  :: (place[i] == INGESTED) -> place[i] = AHEAD \
  :: (place[i] == INGESTED) -> place[i] = BEHIND

proctype World() {
end:
  do
  API(0)
#if EVENTS == 2
  API(1)
#endif
  :: d_step { (polls > 0 && !fetched) -> polls = polls - 1; fetches = fetches + 1; fetched = true; ALL(FETCH) }
  :: atomic { fetched -> ALL(put_live); fetched = false; ALL(FORGET); end_at = fetches }
  :: d_step { (moves > 0) -> moves = moves - 1; epoch = epoch + 1; end_at = 0; fetched = false; ALL(MOVE) }
  :: d_step { (remakes > 0) -> remakes = remakes - 1; topic = topic + 1; losses = losses + 1; ALL(REMAKE) }
#ifdef FINITE
  :: d_step { (deletions > 0) -> deletions = deletions - 1; ALL(DELETE) }
#endif
  :: d_step { (!open && opens > 0) -> opens = opens - 1; open = true }
  :: open -> open = false
  od
}

/* ---- a repair ---- */
inline put_event() {
  held[at] = true; repaired[at] = true;
#ifdef NO_EPOCH
  checked = epoch;
#endif
  if :: (epoch == checked) ->                          /* else it counts as before the move */
          ever[at] = ever[at] + 1;
          assert(ever[at] <= 1);                       /* ONCE */
          assert(place[at] == BEHIND)                  /* LIVE */
     :: else -> skip
  fi
}
inline put_mark() { names[at] = names[at] | (1 << id); by[at] = mine }

#define REPORT assert(losses != seen || held[at] || gone[at])   /* THERE */

#ifdef NO_FENCE
#define FENCED false
#else
#define FENCED (producer != me)
#endif
#ifdef NO_TOPIC_ID
#define OF(i) (names[i] != 0)
#else
#define OF(i) ((names[i] & (1 << id)) != 0)
#endif
#define STRANGER(i) (by[i] != was[i] && (i != at || by[i] != mine))

#define MARKS(i) known[i] = OF(i); was[i] = by[i]
#define FRONTIER(i) front_of[i] = front[i]
#define BEFORE(i) before[i] = held[i]

/* the topic is read: its committed records */
#ifdef LSO_STALE
#define LOOK atomic { if :: (!held[at] || open) -> absent = true :: held[at] -> absent = false fi }
#endif
#ifdef LOOK_FIRST
#define LOOK absent = !before[at]
#endif
#ifndef LOOK
#define LOOK atomic { (!open) -> absent = !held[at] }
#endif
#ifdef NO_KEEP
#define KEEP skip
#else
#define KEEP if :: (topic != id) -> goto ended :: else -> skip fi
#endif
#ifdef OLD_DRAIN
#define PROOF (end_at > 0 && !fetched && fetches >= as_of)
#else
#define PROOF (end_at > as_of)
#endif

/* EndTxn(commit) */
#define END_TXN(commit) \
  if :: commit; goto published                         /* the reply arrives */ \
     :: FAULT; commit; goto doubt                      /* the reply is lost */ \
     :: FAULT; goto doubt                              /* the request is lost */ \
  fi

proctype Repair(byte me) {
  byte mine = 0, at = 0, id = 0, session = 0, seen = 0, in_epoch = 0, checked = 0, as_of = 0, class = 0;
  byte front_of[EVENTS], was[EVENTS];
  bool known[EVENTS], absent = false, drained = false;
#ifdef LOOK_FIRST
  bool before[EVENTS];
#endif

end:
  atomic { (runs == me && end_at > 0) -> runs = runs + 1; mine = runs; in_epoch = epoch } /* alike, so in this order */
  d_step { id = topic; seen = losses }
#ifdef LOOK_FIRST
  d_step { ALL(BEFORE) }
#endif
  d_step { producer = me; session = topic }
  atomic {                                             /* the barrier shows what was committed before it */
    if :: FENCED -> goto ended :: else -> skip fi;
    d_step { ALL(MARKS) }
  }
  d_step { ALL(FRONTIER) }

part:
  atomic {                                             /* the export is read */
    if
    :: (at == EVENTS) -> goto ended
    :: (at < EVENTS && place[at] < AHEAD) -> goto next
    :: (at < EVENTS && place[at] >= AHEAD) -> skip
    fi;
    as_of = fetches;
#ifdef OLD_DRAIN
    if :: fetched -> as_of = fetches :: else -> as_of = fetches + 1 fi;
#endif
#ifdef UNDATED
    class = NEAR;
#else
    class = front_of[at];
#endif
#ifdef NO_FRONTIER
    if :: (class == AFTER) -> class = PASSED :: else -> skip fi;
#endif
#if defined(NO_LATE) || defined(NO_AWAIT)
    if :: (class == NEAR) -> class = PASSED :: else -> skip fi;
#endif
    skip
  }
  LOOK;
  KEEP;
  if
  :: (absent && class == NEAR) ->
#ifndef DRAINED_STAYS
       drained = false;
#endif
       if
       :: atomic { PROOF -> in_epoch = epoch; drained = true }
#ifndef NO_SECOND_LOOK
          LOOK;
          KEEP
#endif
#ifdef UNDATED
       :: goto ended                                   /* not running, paused or too slow: refused */
#else
       :: skip                                         /* left to the stream */
#endif
       fi
  :: else -> skip
  fi;
  if
  :: !absent -> d_step { REPORT; }; goto next
#ifdef FINITE
  :: (absent && known[at]) -> d_step { REPORT; }; goto next
  :: (absent && !known[at] && (class == AFTER || class == NEAR && !drained)) -> goto next
  :: (absent && !known[at] && (class == PASSED || class == NEAR && drained)) -> skip
#else
  :: (absent && (class == AFTER || class == NEAR && !drained)) -> goto next
  :: (absent && (class == PASSED || class == NEAR && drained)) -> skip
#endif
  fi;
  KEEP;
#ifndef NO_EPOCH
  atomic { if :: (epoch != in_epoch) -> goto ended :: else -> checked = epoch fi };
#endif

transact:
#ifdef MARK_BEFORE
  atomic { if :: FENCED -> goto ended :: else -> put_mark() fi };
#endif
  atomic {
    if
    :: FENCED -> goto ended
    :: (!FENCED && session != topic) -> goto doubt     /* the topic of the session is gone */
    :: (!FENCED && session == topic) ->
#if defined(MARK_BEFORE) || defined(MARK_LATER)
         END_TXN(put_event())
#else
         END_TXN(put_event(); put_mark())
#endif
    fi
  };

doubt:
  skip;                                                /* another session */
  d_step { producer = me }
  atomic {
    if :: FENCED -> goto ended :: else -> skip fi;
#ifndef OTHER_SESSION
    if :: (topic != session) -> goto ended :: else -> skip fi;
#endif
    session = topic;
#ifndef NO_STRANGER
    if :: ANY(STRANGER) -> goto ended :: else -> skip fi;
#endif
#ifndef NO_DOUBT
    if :: (by[at] == mine) -> goto marked :: else -> skip fi;
#endif
    skip
  };
  goto transact;

published:
#ifdef MARK_LATER
  atomic { if :: FENCED -> goto ended :: else -> put_mark() fi };
#endif
marked:
  skip;
  d_step { was[at] = by[at]; REPORT };
next:
  skip;
  d_step { at = at + 1; absent = false; as_of = 0; class = 0; checked = 0 };
  goto part;

ended:
  skip;
  d_step { id = 0; session = 0; seen = 0; in_epoch = 0; as_of = 0; class = 0; checked = 0; absent = false; drained = false }
}

init {
  byte i = 0;
  atomic {
    run World();
    do :: (i < RUNS) -> run Repair(i); i = i + 1 :: else -> break od
  }
}
