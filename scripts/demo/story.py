#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays the story of scripts/demo.sh, act by act. Every sentence with ✓ or ✗ was looked at, not assumed; the exit
status is 0 only if none failed."""
import argparse
import contextlib
import os
import random
import signal
import sys
import time

from stage import GUESTS, NOTICE_S, SAVE_EVERY, Stage, guests, open_capture, say, title, wait_until
import kept  # after stage, which says where the tests' library is
import late_words

# Far beyond what a quiet machine needs: a busy one must not fail a correct product.
MOVE_S = 240  # until the guests run elsewhere
RESUME_S = 300  # from there to their first packet
LOG_S = 60  # until an attempt's first words are here
STEP_S = 240  # from one step to the next, or from the last one to the end
TELL_S = 30  # between two words of how far a guest is
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
QUIET_S = 3  # without any packet; a guest sends every 5 ms


def act_1_run(stage):
    title("1. Two students' trainings run on lab-a; their checkpoints become durable elsewhere")
    say("  generation: one complete checkpoint of a job, numbered; durable: verified on other nodes and written down "
        "by the coordinator")
    for guest in GUESTS:
        stage.submit(guest)
    stage.wait("both to run on lab-a", lambda: stage.all_run_at("lab-a"), 180)
    for guest in GUESTS:
        durable = stage.wait(f"a durable generation of {guest}", lambda: stage.generation(guest) >= 1, 300)
        if durable:
            found = stage.rest.generations(stage.jobs[guest])[-1]
            stage.check(found["source"] not in found["holders"], f"{guest}: generation {stage.generation(guest)} is "
                        f"held by {len(found['holders'])} other node(s)")
    stage.wait("packets of both at the peer", lambda: all(stage.capture.packets(guest) for guest in GUESTS), 20)


def at_some_moment(rng, most_s=8):
    """The seed decides how far behind the last save the guests are when it happens."""
    moment = rng.uniform(0, most_s)
    say(f"({moment:.1f} s later)")
    time.sleep(moment)


def act_2_notice(stage, rng):
    title("2. lab-a's owner reclaims with notice: save, move, free")
    say("  attempt: one run of a job on one node; epoch: its number, by which an older one's late effects are refused")
    at_some_moment(rng)
    before = {guest: stage.attempts(guest)[-1]["epoch"] for guest in GUESTS}
    act = stage.begin("notice", "lab-a")
    done = stage.nodes["lab-a"].owner("reclaim")
    say(f"$ reclaim-agent reclaim → {done.stdout.strip()}")
    stage.wait("both to run on lab-b", lambda: stage.all_run_at("lab-b"), MOVE_S)
    stage.finish(act)
    stage.check(act.cleared_s is not None and act.cleared_s <= 20.5, "lab-a was cleared before its deadline of 20 s")
    stage.check_free("lab-a")
    check_resume(stage, act, before)


def check_resume(stage, act, before, is_told=True):
    """By what the peer saw: it went on at a step that it had done, and does new ones. By the guest's own output: that
    step is its last whole save where it was given notice (`is_told`), else that of its last durable generation."""
    for guest in GUESTS:
        # Python needs some seconds to import torch before the first packet.
        stage.wait(f"a step of {guest} that it had not done before", lambda: stage.has_new_step(act, guest), RESUME_S)
        newest = stage.attempts(guest)[-1]
        where = stage.lab_of(guest)
        stage.check(newest["epoch"] != before[guest],
                    f"{guest}: a new attempt with a new epoch" + (f", on {where}" if where else ""))
        one = stage.displaced(act, guest)
        if not stage.check(one is not None and one.restored is not None, f"{guest}: the peer sees it again"):
            continue
        stage.check(0 < one.restored <= one.step, f"{guest}: goes on from step {one.restored}; it had done {one.step}, "
                    f"and was silent for {one.silence_s:.1f} s")
        check_generation(stage, guest, before[guest], newest, is_told)


def check_generation(stage, guest, old_epoch, newest, is_told):
    """The attempt that `newest` is, against the one with `old_epoch`, which was the last one that ran before."""
    ran = [one["epoch"] for one in stage.attempts(guest) if one["started_wall_ms"]]
    stage.check(ran[-2:] == [old_epoch, newest["epoch"]], f"{guest}: one attempt ran after the other")
    durable = stage.last_generation_before(guest, newest)
    stage.check(newest["resumed_generation"] == durable,
                f"{guest}: given generation {newest['resumed_generation']}, the last durable one is {durable}")
    new = stage.wait(f"{guest}'s word of its begin", lambda: begun(stage.told(guest, newest["epoch"])), LOG_S)
    if new is None:
        return
    old = stage.told(guest, old_epoch)
    if is_told:
        stage.check(new.is_resumed and new.begin in old.may_resume_at(SAVE_EVERY),
                    f"{guest}: by its own log at step {new.begin}, its last whole save "
                    f"({in_words(old.saved[-2:])})")
    else:  # of a node that is lost, the last words may be missing: it may have saved once more
        known = [old.begin, *old.saved, max(old.saved, default=old.begin) + SAVE_EVERY]
        stage.check(new.is_resumed and new.begin in known,
                    f"{guest}: by its own log at step {new.begin}, a whole save ({in_words(old.saved[-3:])})")


def in_words(saved):
    """Steps at which an attempt says that it has saved."""
    if not saved:
        return "the attempt before had not said that it saved"
    return f"the attempt before saved last at step{'s' * (len(saved) > 1)} " + " and ".join(map(str, saved))


def begun(told):
    return told if told.begin is not None else None


def act_3_home(stage, rng):
    title("3. lab-a returns: the jobs go home by themselves, showing their numbers")
    say("  gains: seconds of full speed more at home than here within the next hours (4 where nobody knows how long a "
        "job lasts)")
    say("  for: what the move costs; speed: got of the processor time asked for; value: speed times the chance that "
        "the place stays")
    at_some_moment(rng)
    before = {guest: stage.attempts(guest)[-1]["epoch"] for guest in GUESTS}
    act = stage.begin("home", "lab-b")
    stage.nodes["lab-a"].owner("release")
    say("lab-a's owner releases it: guests may come again")
    stage.wait("both to be back on lab-a", lambda: stage.all_run_at("lab-a"), MOVE_S)
    stage.finish(act)
    act.cut_s = None
    names = {job: guest for guest, job in stage.jobs.items()}
    for event in stage.rest.events():
        if "home" in event["kind"] or "migrat" in event["kind"]:
            say(f"  {names.get(event['job'], event['job'])}: {event['kind']}: {event['message']}")
    check_resume(stage, act, before)


def act_4_emergency(stage, rng):
    title("4. lab-a's owner takes it back now, with the agent and the container engine frozen")
    at_some_moment(rng)
    before = {guest: stage.attempts(guest)[-1]["epoch"] for guest in GUESTS}
    node = stage.nodes["lab-a"]
    processes, links = stage.of_guests("lab-a")
    stage.check(processes and links, f"of guests on lab-a: {len(processes)} processes, {len(links)} interfaces")
    frozen = node.engine_pids()
    stage.check(len(frozen) >= 2, f"the container engine ({len(frozen)} processes) and the agent are frozen: SIGSTOP")
    node.agent.freeze()
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    act = stage.begin("emergency", "lab-a")
    done = node.kill_switch()
    act.command_s = time.time() - act.begun
    say(f"$ reclaim-warden kill → {done.stdout.strip()} ({act.command_s * 1000:.0f} ms)")
    time.sleep(1)  # a packet that were still to come would be here by then
    late = stage.packets_from("lab-a", act.begun + act.command_s)
    stage.check(not late, f"the peer saw no guest packet after the answer ({len(late)})")
    stage.check_free("lab-a")
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    node.agent.thaw()
    stage.wait("both to run on lab-b", lambda: stage.all_run_at("lab-b"), MOVE_S)
    stage.finish(act)
    check_resume(stage, act, before, is_told=False)


def act_5_lost(stage, rng):
    title("5. lab-b's cable: a blip moves nothing; then lab-b vanishes, and its zombie is fenced")
    say("  zombie: an attempt that runs on behind a pulled cable; fenced: its epoch is old, so nothing it does counts")
    before = {guest: stage.attempts(guest)[-1]["epoch"] for guest in GUESTS}
    blip_s = rng.uniform(1, 2) * stage.coordinator.heartbeat_s
    say(f"lab-b: cable out for {blip_s:.1f} s")
    stage.labs.link("lab-b", up=False)
    time.sleep(blip_s)
    stage.labs.link("lab-b", up=True)
    time.sleep(4 * stage.coordinator.heartbeat_s)  # longer than a loss needs to be noticed
    stage.check(all(stage.attempts(guest)[-1]["epoch"] == before[guest] for guest in GUESTS), "nothing has moved")
    stage.check(stage.all_run_at("lab-b"), "both still run on lab-b")

    at_some_moment(rng)
    act = stage.begin("lost", "lab-b")
    stage.labs.link("lab-b", up=False)
    act.cut = time.time()
    stage.nodes["lab-b"].agent.kill()
    say("lab-b: cable pulled, agent killed")
    stage.nodes["lab-a"].owner("release")
    say("lab-a's owner releases it")
    stage.wait("both to run on lab-a", lambda: stage.all_run_at("lab-a"), MOVE_S)
    zombies = {guest: stage.attempts(guest)[-2] for guest in GUESTS if len(stage.attempts(guest)) > 1}
    durable = {guest: stage.generation(guest) for guest in GUESTS}
    stage.labs.link("lab-b", up=True)
    say("lab-b: cable back; the old attempts are its zombies")
    check_that_late_words_do_not_count(stage, "lab-b", zombies)
    stage.nodes["lab-b"].start_agent()
    say("lab-b: agent started")
    are_gone = stage.wait(
        "the zombies to end", lambda: not stage.rest.nodes()["lab-b"]["telemetry"]["guests"], 60)
    stage.check(are_gone is not None, "no zombie runs on lab-b any more")
    stage.finish(act)
    act.cut_s = act.cleared_s = act.bytes_sent = None
    for guest, zombie in zombies.items():
        ends = [one["end"] for one in stage.attempts(guest) if one["epoch"] == zombie["epoch"]]
        stage.check(ends and ends[0] in ("lost", "fenced"),
                    f"{guest}: in the record the attempt on lab-b has ended as {' '.join(ends)}")
        newest = stage.job(guest)["durable"]
        stage.check(newest["generation"] >= durable[guest], f"{guest}: nothing durable was taken back")
    check_resume(stage, act, before, is_told=False)


def check_that_late_words_do_not_count(stage, lab, zombies):
    """No honest agent says so much for a zombie; with lab-b's own certificate one that lies does."""
    of = {job: guest for guest, job in stage.jobs.items()}
    said = late_words.speak_for(stage.nodes[lab], stage.coordinator, stage.rest.nodes()[lab], [
        {"job": stage.jobs[guest], "epoch": zombie["epoch"], "generation": stage.generation(guest) + 1}
        for guest, zombie in zombies.items()])
    for one in said:
        what = "one generation more" if one["what"] == "generation" else "the good end of the job"
        stage.check(not one["is_accepted"], f"{of[one['job']]}: with {lab}'s own certificate its zombie, epoch "
                    f"{one['epoch']}, reports {what}: "
                    f"{'taken' if one['is_accepted'] else 'refused'}{one['reason'] and ': ' + one['reason']}")
    stage.check(len(said) == 2 * len(zombies), f"the coordinator has answered {len(said)} such reports")


# How far a migration is, by the record of one of the two jobs.
MIGRATION = ("noticed", "saving", "draining", "queued", "placing", "starting")


def states(stage):
    return {guest: stage.job(guest)["state"] for guest in GUESTS}


def kill_in_the_middle(stage, rng):
    """The seed draws the phase and how far into it; what the record says right before the kill is looked at."""
    phase, later_s = rng.choice(("noticed", "draining", "starting")), rng.uniform(0, 0.1)
    reached = MIGRATION[MIGRATION.index(phase):]  # a short one may be over between two looks
    is_there = stage.wait(f"a guest to be {phase}", lambda: any(
        state in reached for state in states(stage).values()), 20, 0.01)
    time.sleep(later_s if is_there else 0)
    last = states(stage)
    stage.coordinator.kill()
    say(f"coordinator: SIGKILL {later_s * 1000:.0f} ms after one was {phase} or farther")
    words = ", ".join(f"{guest} was {state}" for guest, state in last.items())
    stage.check(any(state != "running" for state in last.values()), f"that is in the middle of the migration: {words}")


def act_6_coordinator(stage, rng):
    title("6. The coordinator is killed in the middle of a migration; then an owner reclaims while it is dead")
    before = {guest: stage.attempts(guest)[-1]["epoch"] for guest in GUESTS}
    stage.wait("lab-b to be open again", lambda: stage.rest.nodes()["lab-b"]["lending"] == "open", 60)
    at_some_moment(rng)
    act = stage.begin("coord. killed", "lab-a")
    stage.nodes["lab-a"].owner("reclaim")
    say(f"lab-a's owner reclaims with {NOTICE_S} s of notice")
    kill_in_the_middle(stage, rng)
    time.sleep(2)
    stage.coordinator.start()
    say("coordinator: started again")
    stage.wait("both to run on lab-b", lambda: stage.all_run_at("lab-b"), MOVE_S)
    stage.finish(act)
    stage.check_free("lab-a")
    check_resume(stage, act, before)

    before = {guest: stage.attempts(guest)[-1]["epoch"] for guest in GUESTS}
    at_some_moment(rng)
    act = stage.begin("coord. dead", "lab-b")
    stage.coordinator.kill()
    stage.nodes["lab-a"].owner("release")
    say("coordinator: SIGKILL; lab-a's owner releases it")
    act.begun = time.time()
    stage.nodes["lab-b"].owner("reclaim")
    say("lab-b's owner reclaims; nobody is there to be told")
    deadline = act.begun + NOTICE_S + 0.5
    stage.wait("lab-b to be quiet", lambda: not stage.packets_from("lab-b", time.time() - QUIET_S),
               NOTICE_S + 2 * QUIET_S)
    quiet_since = time.time() - QUIET_S
    time.sleep(max(0.0, deadline + 1 - time.time()))
    late = stage.packets_from("lab-b", min(quiet_since, deadline))
    stage.check(not late, "lab-b went quiet by itself before its deadline, and is quiet until a second after it "
                f"({len(late)} packets)")
    stage.coordinator.start()
    say("coordinator: started again")
    stage.wait("both to run on lab-a", lambda: stage.all_run_at("lab-a"), MOVE_S)
    stage.finish(act)
    stage.check(act.cleared_s is not None, "the coordinator's record of that reclaim is complete")
    check_resume(stage, act, before)


def wait_while_it_goes_on(stage, guest, process):
    """However slow the machine is; but a guest that does no new step for a long time is a failed check."""
    said = time.monotonic()
    while process.is_running():
        last = stage.last_step(guest)
        if time.monotonic() - said >= TELL_S:
            said = time.monotonic()
            say(f"{guest}: {last} of {stage.steps} steps done")
        stage.wait(f"`reclaim run` of {guest} to end, or a step after {last}",
                   lambda: not process.is_running() or stage.last_step(guest) > last, STEP_S)
        if process.is_running() and stage.last_step(guest) <= last:
            break


def act_7_end(stage):
    title("7. The jobs succeed; outputs and logs are home; the models are bit-identical to undisturbed ones")
    say("both have steps left to do, and so have the undisturbed ones beside them: this takes some minutes")
    for guest in GUESTS:
        process = stage.runs[guest]
        wait_while_it_goes_on(stage, guest, process)
        stage.check(process.popen.returncode == 0, f"{guest}: reclaim run ended with {process.popen.returncode}")
        logs = sorted(stage.folders[guest].glob(".reclaim/*/attempt-*.log"))
        stage.check(len(logs) == len(stage.attempts(guest)), f"{guest}: logs of {len(logs)} attempts are here")
        folder, popen = stage.reference[guest]
        wait_until(f"the undisturbed {guest}", lambda: popen.poll() is not None, 900)
        say(f"SHA-256 of {guest}'s final.pt: {guests.digest_of_weights(stage.folders[guest])}… after all that, "
            f"{guests.digest_of_weights(folder)}… undisturbed")
        found = guests.differences(folder, stage.folders[guest])
        stage.check(not found, f"{guest}: curve and weights equal the undisturbed run's, bit by bit, after "
                    f"{len(stage.attempts(guest))} attempts" + "".join(f"\n      {line}" for line in found))


def keep(stage):
    """Until Ctrl-C, after which the story's own verdict counts."""
    try:
        kept.lend_again(stage)
        print_verdict(stage)
        kept.print_block(stage)
        while True:
            signal.pause()
    except KeyboardInterrupt:
        say("ended")


def print_verdict(stage):
    title(f"passed: {stage.checks} checks" if not stage.failures else f"{len(stage.failures)} FAILED")
    for text in stage.failures:
        print("  ✗", text, flush=True)


def take_no_interruption():
    """What takes everything down goes on to its end, however often somebody presses Ctrl-C."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def interrupted(number, _):
    take_no_interruption()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    for number in ENDING:  # SIGINT too: a shell's background job would ignore it
        signal.signal(number, interrupted)
    stage = Stage(arguments.steps)
    say(f"seed {arguments.seed}, run {stage.run}")
    try:
        stage.build_labs()
        title("0. A coordinator and three laboratories in network namespaces")
        stage.build_site()
        stage.bring_image()
        stage.start_references()
        open_capture(stage)
        act_1_run(stage)
        for act in (act_2_notice, act_3_home, act_4_emergency, act_5_lost, act_6_coordinator):
            act(stage, random.Random(f"{arguments.seed} {act.__name__}"))
        act_7_end(stage)
        title("The table")
        stage.print_table()
        if arguments.keep:
            keep(stage)
    except KeyboardInterrupt:
        with contextlib.suppress(BrokenPipeError):
            say("interrupted")
        return 130
    except BrokenPipeError:
        return 141
    finally:
        take_no_interruption()
        with contextlib.suppress(BrokenPipeError):
            say("taking everything down")
        stage.close()
    print_verdict(stage)
    return 1 if stage.failures else 0


if __name__ == "__main__":
    sys.exit(main())
